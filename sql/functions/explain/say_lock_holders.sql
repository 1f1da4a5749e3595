-- Whose transactions have these tables locked, in words, the oldest first, at most five.
-- Since when is known of the caller's own role's (pg_read_all_stats: of everybody's).
create or replace function pgwake.say_lock_holders(tables regclass[])
returns text
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select string_agg(h.who || coalesce(' since ' || to_char(h.at, 'YYYY-MM-DD HH24:MI:SS TZ'), ''), ', '
                    order by h.at nulls first)
  from (
    select distinct
      case when p.gid is not null then 'prepared transaction ' || pgwake.say_name(p.gid)
        else 'session ' || l.pid || coalesce(' ' || pgwake.say_name(nullif(a.application_name, '')), '') end as who,
      coalesce(p.prepared, a.xact_start) as at
    from pg_locks as l
    left join pg_stat_activity as a on a.pid = l.pid
    left join pg_locks as x on l.pid is null and x.pid is null and x.locktype = 'transactionid'
      and x.virtualtransaction = l.virtualtransaction
    left join pg_prepared_xacts as p on p.transaction = x.transactionid
    where l.locktype = 'relation' and l.granted and l.pid is distinct from pg_backend_pid()
      and l.database = (select d.oid from pg_database as d where d.datname = current_database())
      and l.relation = any (say_lock_holders.tables)
    order by at nulls first
    limit 5
  ) as h
$$;

comment on function pgwake.say_lock_holders is 'Internal: who has tables locked, in words.';
revoke all on function pgwake.say_lock_holders from public;

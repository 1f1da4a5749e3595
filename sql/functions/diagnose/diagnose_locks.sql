-- For diagnose: who holds the advisory locks that limited queues, concurrency keys and
-- upkeep steps take for a transaction each: anybody who may connect can, and nothing of
-- theirs goes on meanwhile.
--
-- lock_held  error  for longer than warn_after, by a session outside of any transaction,
--                   or by a prepared transaction. Of a role whose transactions this one
--                   may not see: by one and the same in three looks, 100 ms apart
--
-- At most ten. A key's name can't be known from its lock.
create or replace function pgwake.diagnose_locks(warn_after interval default '10 seconds')
returns setof pgwake.finding
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  v_database constant oid := (select d.oid from pg_database as d where d.datname = current_database());
  v_held text[];
begin
  for look in 1..3 loop
    select array_agg(s.said) into v_held
    from (
      select format('%s %s %s %s', l.virtualtransaction, l.classid, l.objid, coalesce(l.pid, 0)) as said,
        l.pid is null or l.virtualtransaction like '%/0' or a.xact_start < clock_timestamp() - diagnose_locks.warn_after
          as is_long,
        a.xact_start is null as is_hidden
      from pg_locks as l
      left join pg_stat_get_activity(null) as a on a.pid = l.pid
      where l.locktype = 'advisory' and l.objsubid = 2 and l.granted and l.database = v_database
        and (l.classid in (1885828974, 1885828975) or l.classid = 1885828971 and l.objid between 1 and 8)
    ) as s
    where s.is_long or (s.is_hidden and (look = 1 or s.said = any (v_held)));
    if v_held is null then
      return;
    end if;
    perform pg_sleep(0.1) where look < 3;
  end loop;

  return query
  select 'lock_held', 'error', o.name,
    format('%s holds the lock of %s: %s', o.who, o.name, o.harm),
    case when o.pid = 0 then 'select gid from pg_prepared_xacts;  -- then rollback prepared, or commit prepared'
      else format('select pg_terminate_backend(%s);  -- then: revoke connect on database %I from public', o.pid,
        current_database()) end,
    null::double precision
  from (
    select h.said[4]::int as pid,
      case when h.said[4] = '0' then 'a prepared transaction'
        else format('session %s of role %s, application %s', h.said[4], coalesce(a.usesysid::regrole::text, '?'),
          pgwake.say_name(a.application_name)) end as who,
      case h.said[2]
        when '1885828974' then 'a concurrency key'
        when '1885828975' then 'the queue ' || coalesce(pgwake.say_name(q.name), '?')
        else 'the upkeep step ' || (array['sweep', 'fold', 'retention', 'analyze', 'recount', 'keys', 'children', 'ids'])
          [h.said[3]::int] end as name,
      case when h.said[2] = '1885828971' then 'nobody does it' else 'none of its jobs is started' end as harm
    from (select string_to_array(u.said, ' ') as said from unnest(v_held) as u(said)) as h
    left join pg_stat_get_activity(null) as a on a.pid = h.said[4]::int
    left join pgwake.queues as q on h.said[2] = '1885828975' and hashtext(q.name)::bigint & 4294967295 = h.said[3]::bigint
  ) as o
  order by o.name, o.pid
  limit 10;
end
$$;

comment on function pgwake.diagnose_locks is
  'Internal: for diagnose, who holds the locks of queues, keys and upkeep steps.';
revoke all on function pgwake.diagnose_locks from public;

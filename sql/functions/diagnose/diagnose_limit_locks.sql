-- For diagnose: who holds the advisory locks that limited queues and kinds, concurrency keys
-- and upkeep steps take for a transaction each: anybody who may connect can, and nothing of
-- theirs goes on meanwhile.
--
-- lock_held  error  for longer than warn_after, by a session outside of any transaction,
--                   or by a prepared transaction; how long a transaction lasts that this
--                   role may not see is not known: see hidden_sessions
--
-- At most ten. A key's name can't be known from its lock.
create or replace function pgwake.diagnose_limit_locks(warn_after interval default '10 seconds')
returns setof pgwake.finding
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
begin
  return query
  select 'lock_held', 'error', o.name,
    format('%s holds the lock of %s: %s', o.who, o.name, o.harm),
    case when o.pid is null then 'select gid from pg_prepared_xacts;  -- then rollback prepared, or commit prepared'
      else format('select pg_terminate_backend(%s);  -- then: revoke connect on database %I from public', o.pid,
        current_database()) end,
    null::double precision
  from (
    select l.pid,
      case when l.pid is null then 'a prepared transaction'
        else format('session %s of role %s, application %s', l.pid, coalesce(a.usesysid::regrole::text, '?'),
          pgwake.say_name(a.application_name)) end as who,
      case l.classid
        when 1885828974 then 'a concurrency key'
        when 1885828975 then 'the queue ' || coalesce(pgwake.say_name(q.name), '?')
        when 1885828977 then 'the kind ' || coalesce(pgwake.say_name(k.name), '?')
        else 'the upkeep step ' || (array['sweep', 'fold', 'retention', 'analyze', 'recount', 'keys', 'children', 'ids'])
          [l.objid::bigint] end as name,
      case l.classid when 1885828971 then 'nobody does it' else 'none of its jobs is started' end as harm
    from pg_locks as l
    left join pg_stat_get_activity(null) as a on a.pid = l.pid
    left join pgwake.queues as q on l.classid = 1885828975 and hashtext(q.name)::bigint & 4294967295 = l.objid::bigint
    left join pgwake.kinds as k on l.classid = 1885828977 and hashtext(k.name)::bigint & 4294967295 = l.objid::bigint
    where l.locktype = 'advisory' and l.objsubid = 2 and l.granted
      and l.database = (select d.oid from pg_database as d where d.datname = current_database())
      and (l.classid in (1885828974, 1885828975, 1885828977) or l.classid = 1885828971 and l.objid between 1 and 8)
      and (l.pid is null or l.virtualtransaction like '%/0'
        or a.xact_start < clock_timestamp() - diagnose_limit_locks.warn_after)
  ) as o
  order by o.name, o.pid
  limit 10;
end
$$;

comment on function pgwake.diagnose_limit_locks is
  'Internal: for diagnose, who holds the locks of queues, keys and upkeep steps.';
revoke all on function pgwake.diagnose_limit_locks from public;

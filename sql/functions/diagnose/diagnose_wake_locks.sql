-- For diagnose: sessions that hold a queue's notify lock or duty lock as no client
-- should. One look proves nothing, since each insert holds a notify lock shared for a
-- microsecond: what all of three looks see, 5 ms apart, is held. Only what the first
-- found is looked at again.
--
-- wake_lock_held  error  shared, so that who sleeps can't take it and inserts wake
--                        nobody; or without the duty lock, so that inserts notify for
--                        nobody
create or replace function pgwake.diagnose_wake_locks()
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
      with held as materialized (
        select l.pid, l.mode, l.classid::bigint << 32 | l.objid::bigint as key
        from pg_locks as l
        where l.locktype = 'advisory' and l.objsubid = 1 and l.granted and l.database = v_database
      )
      select format('%s %s %s', h.pid, h.mode, h.key) as said
      from held as h
      where h.mode = 'ShareLock'
        or not exists (select from held as o where o.pid = h.pid and o.key in (h.key - 1, h.key + 1))
    ) as s
    where look = 1 or s.said = any (v_held);
    if v_held is null then
      return;
    end if;
    perform pg_sleep(0.005) where look < 3;
  end loop;

  return query
  with held as (
    select h.said[1]::int as pid, h.said[2] = 'ShareLock' as is_shared, h.said[3]::bigint as key
    from (select string_to_array(u.said, ' ') as said from unnest(v_held) as u(said)) as h
  ),
  known as (
    select q.name from pgwake.queues as q
    union select u.name from pgwake.workers as w cross join unnest(w.queues) as u(name)
    union select r.queue from pgwake.count_rows as r
  )
  select 'wake_lock_held', 'error', k.name,
    format('session %s of role %s, application %s holds the %s of the queue %s %s', h.pid,
      coalesce(a.usesysid::regrole::text, '?'), pgwake.say_name(a.application_name),
      case h.key when b.key then 'notify lock' else 'duty lock' end, pgwake.say_name(k.name),
      case when h.is_shared then 'shared: no worker can be woken'
        else 'without being on duty: inserts notify in vain' end),
    format('select pg_terminate_backend(%s);  -- its client is to call pgwake.park(), not to lock', h.pid),
    null::double precision
  from known as k
  cross join lateral (select pgwake.notify_lock_key(k.name) as key) as b
  join held as h on h.key = b.key or h.key = b.key + 1 and h.is_shared
  left join pg_stat_get_activity(null) as a on a.pid = h.pid
  order by k.name, h.pid
  limit 10;
end
$$;

comment on function pgwake.diagnose_wake_locks is
  'Internal: for diagnose, who holds a notify or duty lock as no client should.';
revoke all on function pgwake.diagnose_wake_locks from public;

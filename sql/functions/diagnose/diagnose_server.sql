-- For diagnose: what the server has left.
--
-- notification_queue  warning from a tenth of it (notify_share) on, error from a half
-- transaction_ids     warning when the oldest is a quarter (id_share) of the way from
--                     where autovacuum must act to where the server stops, error at a
--                     half; multixact_ids likewise
-- connections         warning when nine tenths (connection_share) of those that
--                     ordinary roles may have are in use
-- dead_rows           warning: a table has more than dead_rows, and was not vacuumed
--                     for vacuum_age; with fewer, autovacuum may have had other work
create or replace function pgwake.diagnose_server(
  notify_share double precision default 0.1,
  id_share double precision default 0.25,
  connection_share double precision default 0.9,
  dead_rows bigint default 1000000,
  vacuum_age interval default '15 minutes'
)
returns setof pgwake.finding
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
begin
  return query
  select 'notification_queue', case when q.share < 0.5 then 'warning' else 'error' end, 'NOTIFY',
    format('the server''s queue of notifications is %s%% full, since a session that listens does not read: %s. When '
      'it is full, commits that notify fail', round((100 * q.share)::numeric, 1),
      case when a.pid is null then 'its client may be stopped' else format('perhaps session %s of database %I, in a '
        'transaction for %s', a.pid, a.datname, date_trunc('second', clock_timestamp() - a.xact_start)) end),
    case when a.pid is null
      then 'select * from pg_stat_activity where wait_event = ''ClientWrite'';  -- then pg_terminate_backend() it'
      else format('select pg_terminate_backend(%s);  -- it is in a transaction for the longest', a.pid) end,
    q.share
  from pg_notification_queue_usage() as q(share)
  left join lateral (
    select s.pid, s.datname, s.xact_start
    from pg_stat_activity as s
    where s.state like 'idle in transaction%'
    order by s.xact_start
    limit 1
  ) as a on true
  where q.share >= diagnose_server.notify_share;

  return query
  select i.name, case when i.used > 2 * diagnose_server.id_share then 'error' else 'warning' end,
    current_database()::text,
    format('the oldest of the %s is %s old, and should have been frozen at %s: at 2 billion nothing can be written',
      replace(i.name, '_', ' '), i.age, i.due_age),
    format('vacuumdb --freeze %s  # first end what pins old rows: old_snapshot and its like',
      '''' || replace(current_database(), '''', '''"''"''') || ''''),
    i.age::double precision
  from (
    select n.*, (n.age - n.due_age)::double precision / (2100000000 - n.due_age) as used
    from (
      select 'transaction_ids' as name, age(d.datfrozenxid)::bigint as age,
        current_setting('autovacuum_freeze_max_age')::bigint as due_age
      from pg_database as d where d.datname = current_database()
      union all
      select 'multixact_ids', mxid_age(d.datminmxid), current_setting('autovacuum_multixact_freeze_max_age')::bigint
      from pg_database as d where d.datname = current_database()
    ) as n
  ) as i
  where i.used > diagnose_server.id_share;

  return query
  select 'connections', 'warning', 'max_connections',
    format('%s of the %s connections that ordinary roles may have are in use', c.used, c.allowed),
    'select usename, application_name, count(*) from pg_stat_activity group by 1, 2 order by 3 desc;'
      '  -- then fewer, or a pooler',
    c.used::double precision / c.allowed
  from (
    select (select sum(d.numbackends) from pg_stat_database as d) as used,
      sum(case s.name when 'max_connections' then s.setting::int else -s.setting::int end) as allowed
    from pg_settings as s
    where s.name in ('max_connections', 'superuser_reserved_connections', 'reserved_connections')
  ) as c
  where c.used >= diagnose_server.connection_share * c.allowed;

  if pg_is_in_recovery() then
    return;  -- it has no such statistics
  end if;
  return query
  select 'dead_rows', 'warning', s.relid::regclass::text,
    format('%s has %s dead rows, and was last vacuumed %s', s.relid::regclass, s.n_dead_tup,
      coalesce(date_trunc('second', clock_timestamp() - v.at) || ' ago', 'never')),
    format('vacuum %s;  -- autovacuum should have: its workers are busy, or a lock stops them', s.relid::regclass),
    s.n_dead_tup::double precision
  from pg_stat_user_tables as s
  cross join lateral (select greatest(s.last_autovacuum, s.last_vacuum) as at) as v
  where s.schemaname = 'pgwake' and s.n_dead_tup > diagnose_server.dead_rows
    and greatest(v.at, pg_postmaster_start_time()) < clock_timestamp() - diagnose_server.vacuum_age
    and s.relid not in (select p.relid from pg_stat_progress_vacuum as p)
  order by s.n_dead_tup desc
  limit 10;
end
$$;

comment on function pgwake.diagnose_server is
  'Internal: for diagnose, what the server has left.';
revoke all on function pgwake.diagnose_server from public;

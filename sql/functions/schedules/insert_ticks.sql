-- Inserts a job for each tick of a schedule, and returns the ids: none for a tick whose
-- unique key a live job has. Internal: for fire_schedule and run_schedule, which hold the
-- schedule's row.
create or replace function pgwake.insert_ticks(schedule pgwake.schedules, ticks timestamptz[])
returns setof bigint
language sql volatile
set search_path = pg_catalog, pg_temp
as $$
  insert into pgwake.jobs
    (kind, payload, queue, priority, run_at, max_attempts, concurrency_key, unique_key, metadata)
  select insert_ticks.schedule.kind, insert_ticks.schedule.payload, insert_ticks.schedule.queue,
    insert_ticks.schedule.priority, greatest(t.tick, pgwake.now()), insert_ticks.schedule.max_attempts,
    insert_ticks.schedule.concurrency_key,
    'schedule/' || insert_ticks.schedule.name || case when insert_ticks.schedule.may_overlap then '/' || u.utc else '' end,
    coalesce(insert_ticks.schedule.metadata, '{}') ||
      jsonb_build_object('schedule', insert_ticks.schedule.name, 'scheduled_for', u.utc)
  from unnest(insert_ticks.ticks) with ordinality as t(tick, place)
  cross join lateral to_char(t.tick at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') as u(utc)
  order by t.place
  on conflict do nothing
  returning id
$$;

comment on function pgwake.insert_ticks is
  'Internal: inserts a job for each tick of a schedule; returns the ids.';
revoke all on function pgwake.insert_ticks from public;

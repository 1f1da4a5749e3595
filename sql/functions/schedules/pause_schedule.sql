-- Has a schedule fire nothing until it is resumed. Jobs that are there stay; the ticks
-- of the next two seconds may be among them.
--
-- Returns whether it was not paused before. Raises PW003 for a name that no schedule
-- has. Rides schedules_pkey.
create or replace function pgwake.pause_schedule(name text)
returns boolean
language sql volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
  select pgwake.set_schedule_paused(pause_schedule.name, true)
$$;

comment on function pgwake.pause_schedule is
  'Has a schedule fire nothing until it is resumed; returns whether it was not paused.';
revoke all on function pgwake.pause_schedule from public;

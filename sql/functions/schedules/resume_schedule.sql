-- Ends a schedule's pause. The ticks that went by meanwhile are never made up.
--
-- Returns whether it was paused. Raises PW003 for a name that no schedule has. Rides
-- schedules_pkey.
create or replace function pgwake.resume_schedule(name text)
returns boolean
language sql volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
  select pgwake.set_schedule_paused(resume_schedule.name, false)
$$;

comment on function pgwake.resume_schedule is
  'Ends a schedule''s pause; returns whether it was paused.';
revoke all on function pgwake.resume_schedule from public;

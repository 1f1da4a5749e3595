-- Ends a schedule's pause. The ticks that went by meanwhile are never made up.
--
-- Returns whether it was paused. Raises PW003 for a name that no schedule has. Rides
-- schedules_pkey.
create or replace function pgwake.resume_schedule(name text)
returns boolean
language plpgsql volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  update pgwake.schedules as s set is_paused = false, updated_at = pgwake.now()
  where s.name = resume_schedule.name and s.is_paused;
  if found then
    return true;
  end if;
  if not exists (select from pgwake.schedules as s where s.name = resume_schedule.name) then
    perform pgwake.raise_invalid(
      format('no schedule is named %L', resume_schedule.name), 'Use a name of list_schedules().');
  end if;
  return false;
end
$$;

comment on function pgwake.resume_schedule is
  'Ends a schedule''s pause; returns whether it was paused.';
revoke all on function pgwake.resume_schedule from public;

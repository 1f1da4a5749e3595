-- Pauses a schedule or resumes it; returns whether it was not so before. Internal: for
-- pause_schedule and resume_schedule. Raises PW003 for a name that no schedule has.
create or replace function pgwake.set_schedule_paused(name text, is_paused boolean)
returns boolean
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  update pgwake.schedules as s
  set is_paused = set_schedule_paused.is_paused,
    next_at = case when not set_schedule_paused.is_paused then s.next_at end,
    updated_at = case when set_schedule_paused.is_paused then s.updated_at else pgwake.now() end
  where s.name = set_schedule_paused.name and s.is_paused <> set_schedule_paused.is_paused;
  if found then
    return true;
  end if;
  if not exists (select from pgwake.schedules as s where s.name = set_schedule_paused.name) then
    perform pgwake.raise_invalid(
      format('no schedule is named %L', set_schedule_paused.name), 'Use a name of list_schedules().');
  end if;
  return false;
end
$$;

comment on function pgwake.set_schedule_paused is
  'Internal: pauses a schedule or resumes it.';
revoke all on function pgwake.set_schedule_paused from public;

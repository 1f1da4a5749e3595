-- Has a schedule fire nothing until it is resumed. Jobs that are there stay; the ticks
-- of the next two seconds may be among them.
--
-- Returns whether it was not paused before. Raises PW003 for a name that no schedule
-- has. Rides schedules_pkey.
create or replace function pgwake.pause_schedule(name text)
returns boolean
language plpgsql volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  update pgwake.schedules as s set is_paused = true, next_at = null
  where s.name = pause_schedule.name and not s.is_paused;
  if found then
    return true;
  end if;
  if not exists (select from pgwake.schedules as s where s.name = pause_schedule.name) then
    perform pgwake.raise_invalid(
      format('no schedule is named %L', pause_schedule.name), 'Use a name of list_schedules().');
  end if;
  return false;
end
$$;

comment on function pgwake.pause_schedule is
  'Has a schedule fire nothing until it is resumed; returns whether it was not paused.';
revoke all on function pgwake.pause_schedule from public;

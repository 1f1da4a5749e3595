-- Makes a job of a schedule now, beside those of its ticks, which stay as they are; of a
-- paused schedule too.
--
-- Returns the job's id; null: none was made, since a live job has its unique key (the last
-- one, with may_overlap => false; else one of the same second). Raises PW003 for a name
-- that no schedule has; what else refuses a job is raised as it is. Locks the schedule's
-- row. Rides schedules_pkey.
create or replace function pgwake.run_schedule(name text)
returns bigint
language plpgsql volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_schedule pgwake.schedules;
  v_job_id bigint;
begin
  select s.* into v_schedule from pgwake.schedules as s where s.name = run_schedule.name for update;
  if not found then
    perform pgwake.raise_invalid(
      format('no schedule is named %L', run_schedule.name), 'Use a name of list_schedules().');
  end if;
  select i.id into v_job_id from pgwake.insert_ticks(v_schedule, array[pgwake.now()]) as i(id);
  update pgwake.schedules as s
  set last_job_id = v_job_id, fired_count = s.fired_count + 1
  where s.name = run_schedule.name and v_job_id is not null;
  return v_job_id;
end
$$;

comment on function pgwake.run_schedule is
  'Makes a job of a schedule now, beside those of its ticks; returns its id, or null while a live job has its key.';
revoke all on function pgwake.run_schedule from public;

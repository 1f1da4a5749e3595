-- Makes a job of each tick, and notes the next one: all or, if somebody else has fired
-- or changed the schedule since due_schedules() told its version, nothing. So whoever
-- believes that it is his turn, with whatever clock, each tick becomes one job.
--
-- ticks are ascending, after all that were fired before, and not over two seconds
-- ahead; none at all is right where only next_at was to be computed. A job is due at
-- its tick, or now if that is past, and has the unique key schedule/NAME/TICK. With
-- may_overlap => false that is schedule/NAME: a tick is left out while the job of an
-- earlier one is live.
--
-- Returns how many jobs it has added; null: the version is void, or somebody is firing
-- it now. Raises PW003 for ticks that can't be; what else refuses a job is raised as it
-- is. Locks the schedule's row, waits for nobody. Rides schedules_pkey.
create or replace function pgwake.fire_schedule(
  name text, version text, ticks timestamptz[], next_at timestamptz
)
returns int
language plpgsql volatile
security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
  v_schedule pgwake.schedules;
  v_last_tick timestamptz := fire_schedule.ticks[cardinality(fire_schedule.ticks)];
  v_count int;
  v_job_id bigint;
begin
  if fire_schedule.ticks is null or fire_schedule.next_at is null
    or not isfinite(fire_schedule.next_at) or fire_schedule.next_at <= v_last_tick
    or exists (
      select from (
        select t.tick, lag(t.tick) over (order by t.place) as before
        from unnest(fire_schedule.ticks) with ordinality as t(tick, place)
      ) as t
      where isfinite(t.tick) is not true or t.tick <= t.before
    ) then
    perform pgwake.raise_invalid(
      'ticks or next_at is null, or they are not in order',
      'Pass the ticks from the first to the last, {} for none, and as next_at the one that follows.');
  end if;
  if v_last_tick > pgwake.now() + interval '2 seconds' then
    perform pgwake.raise_invalid(
      format('tick %s is more than 2 seconds ahead', v_last_tick), 'Fire the ticks that due_schedules() asks for.');
  end if;

  select s.* into v_schedule
  from pgwake.schedules as s
  where s.name = fire_schedule.name and s.xmin::text = fire_schedule.version and not s.is_paused
  for update skip locked;
  if not found then
    return null;
  end if;
  if v_schedule.last_at > pgwake.now() + interval '3 hours' then
    v_schedule.last_at := null;  -- the clock was put back
  end if;
  -- A transaction that calls twice gives the row no other version in between.
  if fire_schedule.ticks[1] <= v_schedule.last_at or fire_schedule.next_at <= v_schedule.last_at then
    return null;
  end if;

  select count(*), max(f.id) into v_count, v_job_id
  from pgwake.insert_ticks(v_schedule, fire_schedule.ticks) as f(id);

  update pgwake.schedules as s
  set next_at = fire_schedule.next_at,
    last_at = coalesce(v_last_tick, v_schedule.last_at),
    last_job_id = coalesce(v_job_id, s.last_job_id),
    fired_count = s.fired_count + v_count,
    left_out_count = s.left_out_count + cardinality(fire_schedule.ticks) - v_count,
    problem = null, problem_at = null
  where s.name = fire_schedule.name;
  return v_count;
end
$$;

comment on function pgwake.fire_schedule is
  'Makes a job of each tick, unless somebody else has since; returns how many, or null.';
revoke all on function pgwake.fire_schedule from public;

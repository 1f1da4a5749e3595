-- Makes a job recurring: by cron, in a time zone, or after each interval
-- of real time (every). Replaces the schedule of that name, if it is different.
--
-- Workers fire the ticks; see due_schedules(). Each tick becomes one job, due at the
-- tick, with kind, payload, queue, priority, max_attempts, concurrency_key as for
-- enqueue(), and with metadata {"schedule": its name, "scheduled_for": the tick} merged
-- into its own.
--
-- cron           five fields or @daily and its like; see cron_problem
-- timezone       a name of pg_timezone_names; default UTC
-- every          1 second to 366 days, in whole seconds; a day is 24 hours. Its ticks
--                count from starts_at, else from the last tick, or the creation if
--                there was none
-- starts_at      no tick is before it; default now
-- may_overlap    false: a tick is left out while the job of an earlier one is live;
--                ticks are fired within a second after their time then, and not before
--                it
-- misfire        which of the ticks that nobody fired in time are fired later: skip: none
--                that is over a minute late; once: the newest, however late; all: the
--                newest misfire_limit
--
-- Returns whether anything is different now: called again with the same arguments it
-- changes and locks nothing, so that a deploy may repeat it. A schedule that is
-- replaced stays paused if it was, and ticks before the replacement are not fired any
-- more. Jobs that are there stay as they are; the ticks of the next two seconds may be
-- among them.
--
-- Raises PW003 for what can't be meant, and for a payload that its kind does not take
-- (check_payload); the table's named checks (23514). Rides schedules_pkey.
create or replace function pgwake.schedule(
  name text,
  cron text default null,
  kind text default null,
  payload jsonb default '{}',
  queue text default 'default',
  timezone text default 'UTC',
  every interval default null,
  priority int default 0,
  max_attempts int default null,
  metadata jsonb default null,
  concurrency_key text default null,
  may_overlap boolean default true,
  misfire text default 'once',
  misfire_limit int default 100,
  starts_at timestamptz default null
)
returns boolean
language plpgsql volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_problem text[];
begin
  if num_nulls(schedule.name, schedule.kind, schedule.payload, schedule.queue, schedule.timezone,
    schedule.priority, schedule.may_overlap, schedule.misfire, schedule.misfire_limit) > 0 then
    perform pgwake.raise_invalid(
      'name, kind, payload, queue, timezone, priority, may_overlap, misfire or misfire_limit is null',
      'Leave an argument out to get its default; name and kind have none.');
  end if;
  if num_nonnulls(schedule.cron, schedule.every) <> 1 then
    perform pgwake.raise_invalid(
      format('cron and every are %s given', case when schedule.cron is null then 'not' else 'both' end),
      'Give one of them: cron => ''30 2 * * *'' or every => ''10 minutes''.');
  end if;
  if exists (
    select from pgwake.schedules as s
    where s.name = schedule.name and not (
      s.cron, s.every, s.timezone, s.kind, s.payload, s.queue, s.priority, s.max_attempts, s.metadata,
      s.concurrency_key, s.may_overlap, s.misfire, s.misfire_limit, s.starts_at
    ) is distinct from (
      schedule.cron, schedule.every, schedule.timezone, schedule.kind, schedule.payload, schedule.queue,
      schedule.priority, schedule.max_attempts, schedule.metadata, schedule.concurrency_key,
      schedule.may_overlap, schedule.misfire, schedule.misfire_limit, schedule.starts_at)
  ) then
    return false;
  end if;

  if schedule.cron is not null then
    v_problem := pgwake.cron_problem(schedule.cron);
    if v_problem is not null then
      perform pgwake.raise_invalid(v_problem[1], v_problem[2]);
    end if;
  elsif extract(year from schedule.every) <> 0 or extract(month from schedule.every) <> 0 then
    perform pgwake.raise_invalid(
      format('every is %s', schedule.every),
      'Months and years differ in length: use days, or cron, such as @monthly.');
  elsif schedule.every not between interval '1 second' and interval '366 days'
    or schedule.every <> date_trunc('second', schedule.every) then
    perform pgwake.raise_invalid(
      format('every is %s', schedule.every), 'Use 1 second to 366 days, in whole seconds.');
  end if;
  if schedule.timezone <> 'UTC'
    and not exists (select from pg_timezone_names as z where z.name = schedule.timezone) then
    perform pgwake.raise_invalid(
      format('time zone %L is not known', schedule.timezone),
      'Use a name of pg_timezone_names, such as Europe/Berlin.');
  end if;
  if schedule.priority not between -100 and 100 then
    perform pgwake.raise_invalid(
      format('priority is %s', schedule.priority), 'Use -100 to 100; higher runs first.');
  end if;
  if schedule.misfire not in ('skip', 'once', 'all') then
    perform pgwake.raise_invalid(format('misfire is %L', schedule.misfire), 'Use skip, once or all.');
  end if;
  if schedule.misfire_limit not between 1 and 10000 then
    perform pgwake.raise_invalid(format('misfire_limit is %s', schedule.misfire_limit), 'Use 1 to 10000.');
  end if;
  perform pgwake.check_payload(schedule.kind, schedule.payload)
  from pgwake.kinds as k where k.name = schedule.kind and k.check_payload;

  insert into pgwake.schedules as s
    (name, cron, every, timezone, kind, payload, queue, priority, max_attempts, metadata, concurrency_key,
     may_overlap, misfire, misfire_limit, starts_at)
  values
    (schedule.name, schedule.cron, schedule.every, schedule.timezone, schedule.kind, schedule.payload,
     schedule.queue, schedule.priority, schedule.max_attempts, schedule.metadata, schedule.concurrency_key,
     schedule.may_overlap, schedule.misfire, schedule.misfire_limit, schedule.starts_at)
  on conflict (name) do update
  set cron = excluded.cron, every = excluded.every, timezone = excluded.timezone, kind = excluded.kind,
    payload = excluded.payload, queue = excluded.queue, priority = excluded.priority,
    max_attempts = excluded.max_attempts, metadata = excluded.metadata,
    concurrency_key = excluded.concurrency_key, may_overlap = excluded.may_overlap,
    misfire = excluded.misfire, misfire_limit = excluded.misfire_limit, starts_at = excluded.starts_at,
    next_at = null, problem = null, problem_at = null, updated_at = excluded.updated_at;
  return true;
end
$$;

comment on function pgwake.schedule is
  'Makes a job recurring, by cron or after each interval; returns whether anything is different now.';
revoke all on function pgwake.schedule from public;

-- The schedules, by name, with what came of their ticks.
--
-- next_at: the next tick that is not a job yet; null while paused, and until a worker
-- has computed it. last_at: the last tick that became a job or was left out. problem: why
-- a tick can't be computed, or became no job; it is tried again each minute.
--
-- Reads only.
create or replace function pgwake.list_schedules()
returns table (
  name text,
  cron text,
  every interval,
  timezone text,
  kind text,
  queue text,
  is_paused boolean,
  next_at timestamptz,
  last_at timestamptz,
  last_job_id bigint,
  fired_count bigint,
  left_out_count bigint,
  problem text,
  payload jsonb,
  priority smallint,
  max_attempts int,
  metadata jsonb,
  concurrency_key text,
  may_overlap boolean,
  misfire text,
  misfire_limit int,
  starts_at timestamptz,
  updated_at timestamptz
)
language sql stable
security definer
set search_path = pg_catalog, pg_temp
as $$
  select s.name, s.cron, s.every, s.timezone, s.kind, s.queue, s.is_paused, s.next_at::timestamptz,
    s.last_at::timestamptz, s.last_job_id, s.fired_count, s.left_out_count, s.problem, s.payload::jsonb,
    s.priority::smallint, s.max_attempts::int, s.metadata::jsonb, s.concurrency_key::text, s.may_overlap, s.misfire,
    s.misfire_limit, s.starts_at::timestamptz, s.updated_at::timestamptz
  from pgwake.schedules as s
  order by s.name
$$;

comment on function pgwake.list_schedules is
  'The schedules, with their next and last ticks and what came of them.';
revoke all on function pgwake.list_schedules from public;

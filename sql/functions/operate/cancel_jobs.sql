-- Cancels live jobs by queue, kind, concurrency key, unique key and status (waiting,
-- pending, running), as cancel_job does. Arguments left out (null) select all, but at
-- least one must be given.
--
-- Takes at most max_jobs a call, in order of id; repeat it for more. Running jobs whose
-- cancellation was asked for before are left out. Returns how many by outcome, without
-- those that are 0:
--   cancelled         they ended at once
--   cancel_requested  they run; their workers have been told
--   missed            chosen, but when it was their turn they had ended, or were no
--                     longer as asked for; repeat it for those that are still live
-- dry_run answers what would be done, and does nothing.
--
-- Raises PW003 for no filter, an unknown status, or max_jobs not from 1 to 1,000,000.
-- Waits for whoever has a job locked; locks in id order. Reads all of jobs_live.
create or replace function pgwake.cancel_jobs(
  queue text default null,
  kind text default null,
  concurrency_key text default null,
  unique_key text default null,
  status text default null,
  max_jobs int default 10000,
  dry_run boolean default false
)
returns table (outcome text, job_count bigint)
language plpgsql volatile
security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_custom_plan
set jit = off
as $$
#variable_conflict use_column
declare
  v_now timestamptz := pgwake.now();
  v_chosen bigint[];
  v_running_count bigint;
  v_asked bigint[];
  v_workers text[];
  v_idle bigint[];
begin
  if cancel_jobs.queue is null and cancel_jobs.kind is null and cancel_jobs.concurrency_key is null
    and cancel_jobs.unique_key is null and cancel_jobs.status is null
  then
    perform pgwake.raise_invalid(
      'no filter: all live jobs would be cancelled',
      'Give queue, kind, concurrency_key, unique_key or status.');
  end if;
  if cancel_jobs.status not in ('waiting', 'pending', 'running') then
    perform pgwake.raise_invalid(
      format('status is %L', cancel_jobs.status), 'Use waiting, pending or running: jobs that are live.');
  end if;
  if cancel_jobs.max_jobs is null or cancel_jobs.max_jobs not between 1 and 1000000 then
    perform pgwake.raise_invalid(
      format('max_jobs is %s', coalesce(cancel_jobs.max_jobs::text, 'null')),
      'Use 1 to 1000000, and repeat it for more.');
  end if;
  if cancel_jobs.dry_run is null then
    perform pgwake.raise_invalid('dry_run is null', 'Use true to see what would be done, or false to do it.');
  end if;

  select array_agg(c.id), count(*) filter (where c.status = 'running') into v_chosen, v_running_count
  from (
    select j.id, j.status
    from pgwake.jobs_live as j
    where (cancel_jobs.queue is null or j.queue = cancel_jobs.queue)
      and (cancel_jobs.kind is null or j.kind = cancel_jobs.kind)
      and (cancel_jobs.concurrency_key is null or j.concurrency_key = cancel_jobs.concurrency_key)
      and (cancel_jobs.unique_key is null or j.unique_key = cancel_jobs.unique_key)
      and (cancel_jobs.status is null or j.status = cancel_jobs.status)
      and j.cancel_requested_at is null
    order by j.id
    limit cancel_jobs.max_jobs
  ) as c;
  if cancel_jobs.dry_run then
    return query
    select o.outcome, o.job_count
    from (values
      ('cancelled', cardinality(v_chosen) - v_running_count),
      ('cancel_requested', v_running_count)
    ) as o(outcome, job_count)
    where o.job_count > 0;
    return;
  end if;

  select array_agg(l.id) filter (where l.status = 'running'),
    array_agg(l.claimed_by) filter (where l.status = 'running'),
    array_agg(l.id) filter (where l.status <> 'running')
  into v_asked, v_workers, v_idle
  from (
    select j.id, j.status, j.claimed_by
    from pgwake.jobs_live as j
    where j.id = any (v_chosen)
      and (cancel_jobs.queue is null or j.queue = cancel_jobs.queue)
      and (cancel_jobs.kind is null or j.kind = cancel_jobs.kind)
      and (cancel_jobs.concurrency_key is null or j.concurrency_key = cancel_jobs.concurrency_key)
      and (cancel_jobs.unique_key is null or j.unique_key = cancel_jobs.unique_key)
      and (cancel_jobs.status is null or j.status = cancel_jobs.status)
    order by j.id
    for update
  ) as l;

  update pgwake.jobs_live as j
  set cancel_requested_at = coalesce(j.cancel_requested_at, v_now)
  where j.id = any (v_asked);
  perform pgwake.notify_cancellations(v_asked, v_workers);

  if v_idle is not null then
    perform pgwake.end_jobs(
      v_idle, array_fill('cancelled'::text, array[cardinality(v_idle)]), null, null, null);
  end if;

  return query
  select o.outcome, o.job_count::bigint
  from (values
    ('cancelled', coalesce(cardinality(v_idle), 0)),
    ('cancel_requested', coalesce(cardinality(v_asked), 0)),
    ('missed', coalesce(cardinality(v_chosen), 0) - coalesce(cardinality(v_idle), 0)
      - coalesce(cardinality(v_asked), 0))
  ) as o(outcome, job_count)
  where o.job_count > 0;
end
$$;

comment on function pgwake.cancel_jobs is
  'Cancels live jobs by queue, kind, key or status; returns how many by outcome.';
revoke all on function pgwake.cancel_jobs from public;

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
-- Waits for whoever has a job locked; locks in id order. What it reads: choose_jobs.
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
  v_ids bigint[];
  v_asked bigint[];
  v_workers text[];
  v_idle bigint[];
begin
  select c.chosen, c.ids into v_chosen, v_ids
  from pgwake.choose_jobs(
    null, cancel_jobs.queue, cancel_jobs.kind, cancel_jobs.concurrency_key, cancel_jobs.unique_key,
    cancel_jobs.status, null, cancel_jobs.max_jobs, cancel_jobs.dry_run, with_running => true) as c;
  select array_agg(j.id order by j.id) filter (where j.status = 'running'),
    array_agg(j.claimed_by order by j.id) filter (where j.status = 'running'),
    array_agg(j.id order by j.id) filter (where j.status <> 'running')
  into v_asked, v_workers, v_idle
  from pgwake.jobs_live as j
  where j.id = any (v_ids);

  if not cancel_jobs.dry_run then
    update pgwake.jobs_live as j
    set cancel_requested_at = coalesce(j.cancel_requested_at, v_now)
    where j.id = any (v_asked);
    perform pgwake.notify_cancellations(v_asked, v_workers);
    if v_idle is not null then
      perform pgwake.end_jobs(
        v_idle, array_fill('cancelled'::text, array[cardinality(v_idle)]), null, null, null);
    end if;
  end if;

  return query
  select o.outcome, o.job_count::bigint
  from (values
    ('cancelled', coalesce(cardinality(v_idle), 0)),
    ('cancel_requested', coalesce(cardinality(v_asked), 0)),
    ('missed', cardinality(v_chosen) - cardinality(v_ids))
  ) as o(outcome, job_count)
  where o.job_count > 0;
end
$$;

comment on function pgwake.cancel_jobs is
  'Cancels live jobs by queue, kind, key or status; returns how many by outcome.';
revoke all on function pgwake.cancel_jobs from public;

-- Chooses the live jobs that are meant by queue, kind, keys, status and ids, and locks
-- them. Internal, for cancel_jobs and update_jobs: the first max_jobs by id that match
-- all that is given (null: anything), after after_id, without those that were asked to
-- stop.
--
-- chosen: their ids. ids: of those the ones that still match when their turn for the
-- lock has come; without with_running only those that do not run. Under dry_run nothing
-- is locked.
--
-- Raises PW003 for no filter, an unknown status, and max_jobs not from 1 to 1,000,000.
-- Waits for whoever has a job locked; locks in id order. Reads all of jobs_live, or
-- rides jobs_live_pkey.
create or replace function pgwake.choose_jobs(
  job_ids bigint[], queue text, kind text, concurrency_key text, unique_key text, status text, after_id bigint,
  max_jobs int, dry_run boolean, with_running boolean,
  out chosen bigint[], out ids bigint[]
)
returns record
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_custom_plan
set jit = off
as $$
#variable_conflict use_column
begin
  if num_nonnulls(
    choose_jobs.job_ids, choose_jobs.queue, choose_jobs.kind, choose_jobs.concurrency_key, choose_jobs.unique_key,
    choose_jobs.status) = 0
  then
    perform pgwake.raise_invalid(
      'no filter: all live jobs would be meant', 'Give queue, kind, concurrency_key, unique_key or status, or ids.');
  end if;
  if choose_jobs.status not in ('waiting', 'pending', 'running') then
    perform pgwake.raise_invalid(
      format('status is %L', choose_jobs.status), 'Use waiting, pending or running: jobs that are live.');
  end if;
  if choose_jobs.max_jobs is null or choose_jobs.max_jobs not between 1 and 1000000 then
    perform pgwake.raise_invalid(
      format('max_jobs is %s', coalesce(choose_jobs.max_jobs::text, 'null')),
      'Use 1 to 1000000, and repeat it for more.');
  end if;
  if choose_jobs.dry_run is null then
    perform pgwake.raise_invalid('dry_run is null', 'Use true to see what would be done, or false to do it.');
  end if;

  chosen := array(
    select j.id
    from pgwake.jobs_live as j
    where (choose_jobs.job_ids is null or j.id = any (choose_jobs.job_ids))
      and (choose_jobs.queue is null or j.queue = choose_jobs.queue)
      and (choose_jobs.kind is null or j.kind = choose_jobs.kind)
      and (choose_jobs.concurrency_key is null or j.concurrency_key = choose_jobs.concurrency_key)
      and (choose_jobs.unique_key is null or j.unique_key = choose_jobs.unique_key)
      and (choose_jobs.status is null or j.status = choose_jobs.status)
      and (choose_jobs.after_id is null or j.id > choose_jobs.after_id)
      and j.cancel_requested_at is null
    order by j.id
    limit choose_jobs.max_jobs);
  if choose_jobs.dry_run then
    ids := array(
      select j.id
      from pgwake.jobs_live as j
      where j.id = any (chosen) and (choose_jobs.with_running or j.status <> 'running'));
    return;
  end if;
  ids := array(
    select j.id
    from pgwake.jobs_live as j
    where j.id = any (chosen)
      and (choose_jobs.queue is null or j.queue = choose_jobs.queue)
      and (choose_jobs.kind is null or j.kind = choose_jobs.kind)
      and (choose_jobs.concurrency_key is null or j.concurrency_key = choose_jobs.concurrency_key)
      and (choose_jobs.unique_key is null or j.unique_key = choose_jobs.unique_key)
      and (choose_jobs.status is null or j.status = choose_jobs.status)
      and (choose_jobs.with_running or j.status <> 'running')
    order by j.id
    for update);
end
$$;

comment on function pgwake.choose_jobs is
  'Internal: chooses live jobs by filters, and locks them.';
revoke all on function pgwake.choose_jobs from public;

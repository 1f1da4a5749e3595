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
-- Waits for whoever has a job locked; locks in id order.
--
-- Ids ride jobs_live_pkey. Few jobs of a queue or a concurrency key are found by
-- jobs_claim_idx, jobs_lease_idx, jobs_key_idx and jobs_children_idx, those of a kind and
-- unique key by jobs_unique_key_idx. Other filters read all of jobs_live, and a NOTICE
-- says so where there are more than a million jobs: an index by kind would cost each job
-- 18% of WAL and 13% of the server's CPU.
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
declare
  v_queues text[];  -- that have jobs with a key
  v_live_count constant real := (select c.reltuples from pg_class as c where c.oid = 'pgwake.jobs_live'::regclass);
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

  if choose_jobs.queue is null and choose_jobs.concurrency_key is not null then
    v_queues := array(
      with recursive keyed as (
        select '' collate "C" as name
        union all
        select (
          select min(j.queue)
          from pgwake.jobs_live as j
          where j.concurrency_key is not null and j.has_parents_left is not true and j.queue > k.name)
        from keyed as k
        where k.name is not null
      )
      select k.name from keyed as k where k.name is not null);
  elsif num_nonnulls(choose_jobs.queue, choose_jobs.job_ids) = 0
    and num_nulls(choose_jobs.kind, choose_jobs.unique_key) > 0
    and choose_jobs.status is distinct from 'running' and v_live_count > 1000000
  then
    raise notice using
      message = format('all live jobs are read, about %s', v_live_count::bigint),
      hint = 'Name the queue too: its jobs are found by an index.';
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
      -- Always true, each part by an index of its own: a waiting job has a key or parents.
      and (choose_jobs.concurrency_key is null
        or (j.has_parents_left is not true and (v_queues is null or j.queue = any (v_queues))) or j.has_parents_left)
      and (choose_jobs.queue is null or choose_jobs.concurrency_key is not null
        or j.status = 'pending' or j.status = 'running'
        or (j.concurrency_key is not null and j.has_parents_left is not true) or j.has_parents_left)
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

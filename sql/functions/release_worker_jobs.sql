-- Gives back at once what a dead worker had, as crashes; see crash_jobs. Returns how many jobs.
--
-- For whoever knows that the worker is dead, as its supervisor does. A claim of the worker's may still be in flight, so
-- repeat until no session of it is left. Locks in id order, skips locked rows; rides jobs_lease_idx. Raises PW003.
create or replace function pgwake.release_worker_jobs(worker text)
returns int
language plpgsql volatile
set search_path = ''
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
declare
  v_ids bigint[];
begin
  if coalesce(release_worker_jobs.worker, '') = '' then
    perform pgwake.raise_invalid(
      'no worker given', 'Name it as it stands in claimed_by of its running jobs.');
  end if;
  select array_agg(held.id) into v_ids
  from (
    select j.id
    from pgwake.jobs_live as j
    where j.status = 'running' and j.claimed_by = release_worker_jobs.worker
    order by j.id
    for update skip locked
  ) as held;
  if v_ids is null then
    return 0;
  end if;
  perform pgwake.crash_jobs(v_ids, format('the worker died; worker %s', release_worker_jobs.worker));
  return cardinality(v_ids);
end
$$;

comment on function pgwake.release_worker_jobs is 'Gives back what a dead worker had, as crashes; returns how many jobs.';
revoke all on function pgwake.release_worker_jobs from public;

-- Locks running jobs that their holder keeps or says something of: those whose lease is
-- the one beside their id. Internal: for extend_leases and set_progresses, in whose
-- transaction the locks stay.
--
-- Returns the ids that were locked, in order. Waits for nobody: who has a row locked is
-- ending it. Rides jobs_live_pkey.
create or replace function pgwake.lock_held_jobs(job_ids bigint[], lease_ids uuid[])
returns bigint[]
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
begin
  perform pgwake.check_batch_arguments(lock_held_jobs.job_ids, lock_held_jobs.lease_ids);
  return array(
    select j.id
    from pgwake.jobs_live as j
    where j.id = any (lock_held_jobs.job_ids)
      and ((j.id, j.lease_id) in (
        select u.id, u.lease_id
        from unnest(lock_held_jobs.job_ids, lock_held_jobs.lease_ids) as u(id, lease_id)
      )) is true
    order by j.id
    for no key update skip locked);
end
$$;

comment on function pgwake.lock_held_jobs is
  'Internal: locks running jobs that their holder keeps.';
revoke all on function pgwake.lock_held_jobs from public;

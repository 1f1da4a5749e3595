-- Completes a running job, with a result if there is one (at most 1 MiB).
--
-- Raises PW001 no such job, PW002 lease lost (somebody else has it: nothing was
-- changed), PW003 null argument. The same call repeated after a lost answer succeeds
-- again. Rides jobs_live_pkey.
create or replace function pgwake.complete_job(job_id bigint, lease_id uuid, result jsonb default null)
returns void
language plpgsql volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  perform pgwake.raise_outcome(
    complete_job.job_id,
    (pgwake.complete_jobs(
      array[complete_job.job_id], array[complete_job.lease_id], array[complete_job.result]))[1]);
end
$$;

comment on function pgwake.complete_job is 'Completes a running job.';
revoke all on function pgwake.complete_job from public;

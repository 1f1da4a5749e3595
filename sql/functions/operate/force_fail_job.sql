-- Sends a live job to the dead letters whatever its state and whoever has it: for a
-- person who knows better.
--
-- The reason is kept in the job's errors. A worker that still runs it is refused when
-- it ends it. Raises PW001 if there is no such live job, PW003 without a reason.
create or replace function pgwake.force_fail_job(job_id bigint, reason text)
returns void
language plpgsql volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  perform pgwake.force_end_job(force_fail_job.job_id, 'failed', force_fail_job.reason);
end
$$;

comment on function pgwake.force_fail_job is
  'Fails a live job without its lease; for admins.';
revoke all on function pgwake.force_fail_job from public;

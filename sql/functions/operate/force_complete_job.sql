-- Completes a live job whatever its state and whoever has it: for a person who knows
-- that its work is done.
--
-- The reason is kept in the job's errors. A worker that still runs it is refused when
-- it ends it. Raises PW001 if there is no such live job, PW003 without a reason.
create or replace function pgwake.force_complete_job(job_id bigint, reason text)
returns void
language plpgsql volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  perform pgwake.force_end_job(force_complete_job.job_id, 'completed', force_complete_job.reason);
end
$$;

comment on function pgwake.force_complete_job is
  'Completes a live job without its lease; for admins.';
revoke all on function pgwake.force_complete_job from public;

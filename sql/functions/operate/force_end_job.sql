-- Ends a live job without its lease; behind force_complete_job and force_fail_job. The
-- lease is replaced, so that the worker that still runs the job has lost it.
create or replace function pgwake.force_end_job(job_id bigint, new_status text, reason text)
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
begin
  if coalesce(force_end_job.reason, '') = '' then
    perform pgwake.raise_invalid('no reason given', 'Say why; it is kept in the job''s errors.');
  end if;
  perform from pgwake.jobs_live as j where j.id = force_end_job.job_id for update;
  if not found then
    perform pgwake.raise_outcome(force_end_job.job_id, 'no_such_job');
  end if;
  update pgwake.jobs_live as j
  set lease_id = gen_random_uuid()
  where j.id = force_end_job.job_id and j.status = 'running';
  perform pgwake.end_job(
    force_end_job.job_id, force_end_job.new_status, 'forced',
    format('%s (by %s)', force_end_job.reason, session_user));
end
$$;

comment on function pgwake.force_end_job is
  'Internal: ends a live job without its lease.';
revoke all on function pgwake.force_end_job from public;

-- Cancels a job. A waiting or pending one ends at once; a running one is asked to stop,
-- and ends as cancelled when its worker has honoured it: the worker is told on channel
-- pgwake_cancel (see notify_cancellations), and its next extend_leases answers cancel_requested.
--
-- Returns cancelled, cancel_requested, or the status of a job that had ended before:
-- completed, failed, cancelled. Raises PW001 no such job. Waits for whoever has the job
-- locked. Rides jobs_live_pkey.
create or replace function pgwake.cancel_job(job_id bigint)
returns text
language plpgsql volatile
security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
  v_status text;
  v_worker text;
begin
  select j.status, j.claimed_by into v_status, v_worker
  from pgwake.jobs_live as j where j.id = cancel_job.job_id
  for update;
  if v_status = 'running' then
    update pgwake.jobs_live as j
    set cancel_requested_at = coalesce(j.cancel_requested_at, pgwake.now())
    where j.id = cancel_job.job_id;
    perform pgwake.notify_cancellations(array[cancel_job.job_id], array[v_worker]);
    return 'cancel_requested';
  elsif v_status is not null then
    perform pgwake.end_job(cancel_job.job_id, 'cancelled');
    return 'cancelled';
  end if;

  select j.status into v_status from pgwake.jobs as j where j.id = cancel_job.job_id;
  if v_status is null then
    perform pgwake.raise_outcome(cancel_job.job_id, 'no_such_job');
  end if;
  return v_status;
end
$$;

comment on function pgwake.cancel_job is
  'Cancels a job, or asks its worker to; returns cancelled, cancel_requested or how '
  'it had ended.';
revoke all on function pgwake.cancel_job from public;

-- Records a failed attempt of a running job. Returns retry, failed or cancelled; see
-- fail_jobs.
--
-- retry_in sets the delay before the next attempt, retryable => false sends the job to
-- the dead letters. Raises PW001 no such job, PW002 lease lost, PW003 invalid argument.
create or replace function pgwake.fail_job(
  job_id bigint,
  lease_id uuid,
  error text default null,
  traceback text default null,
  retry_in interval default null,
  retryable boolean default true,
  reason text default 'failed'
)
returns text
language plpgsql volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_outcome text;
begin
  if fail_job.retry_in not between interval '0' and interval '10 years' then
    perform pgwake.raise_invalid(
      format('retry_in is %s', fail_job.retry_in), 'Use an interval from 0 to 10 years.');
  end if;
  v_outcome := (pgwake.fail_jobs(
    array[fail_job.job_id], array[fail_job.lease_id], array[fail_job.error],
    array[fail_job.traceback], array[fail_job.reason], array[fail_job.retry_in],
    array[fail_job.retryable]))[1];
  perform pgwake.raise_outcome(fail_job.job_id, v_outcome);
  return v_outcome;
end
$$;

comment on function pgwake.fail_job is
  'Records a failed attempt of a running job; returns retry, failed or cancelled.';
revoke all on function pgwake.fail_job from public;

-- Puts a running job off: pending again, due after the delay (0 to 10 years, from now(),
-- the beginning of the transaction), the attempt not counted.
--
-- Returns released, or cancel_requested if its cancellation had been asked for: then it
-- is cancelled instead. Raises PW001 no such job, PW002 lease lost, PW003 invalid
-- argument. Rides jobs_live_pkey.
create or replace function pgwake.snooze_job(job_id bigint, lease_id uuid, delay interval)
returns text
language plpgsql volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_outcome text;
begin
  if snooze_job.delay is null or snooze_job.delay not between interval '0' and interval '10 years' then
    perform pgwake.raise_invalid(
      format('delay is %s', coalesce(snooze_job.delay::text, 'null')),
      'Use an interval from 0 to 10 years.');
  end if;
  v_outcome := (pgwake.release_jobs(
    array[snooze_job.job_id], array[snooze_job.lease_id], 'snooze', array[snooze_job.delay]))[1];
  perform pgwake.raise_outcome(snooze_job.job_id, v_outcome);
  return v_outcome;
end
$$;

comment on function pgwake.snooze_job is
  'Puts a running job off without counting the attempt.';
revoke all on function pgwake.snooze_job from public;

-- Has a running job sleep until then: it is pending meanwhile, has no lease and takes no
-- slot, and its attempts, crashes and bounces begin anew. The sleep is recorded as a step
-- of that name; the first until of a name holds, so a job that runs again says the same.
--
-- Returns sleeps: the lease is gone, claim the next; over: go on; or cancelled, if its
-- cancellation had been asked for: then it has ended. Raises PW001 no such job, PW002
-- lease lost, PW003 null argument, a name that is not of 1 to 512 bytes or of another kind
-- of step, or years beyond 9999.
create or replace function pgwake.sleep_job(job_id bigint, lease_id uuid, name text, until timestamptz)
returns text
language plpgsql volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_held record;
begin
  if (sleep_job.until >= '0001-01-02 00:00+00' and sleep_job.until < '9999-12-31 00:00+00') is not true then
    perform pgwake.raise_invalid(
      format('until is %s', coalesce(sleep_job.until::text, 'null')),
      'Say when the job is to go on, in the years 1 to 9999.');
  end if;
  v_held := pgwake.hold_stepping_job(sleep_job.job_id, sleep_job.lease_id, sleep_job.name, 'sleep');
  if v_held.is_cancelled then
    perform pgwake.end_job(sleep_job.job_id, 'cancelled');
    return 'cancelled';
  end if;
  if v_held.kind is null then
    perform pgwake.put_steps(array[sleep_job.job_id], array[sleep_job.name], 'sleep', array[null::jsonb], sleep_job.until);
  end if;
  if coalesce(v_held.until, sleep_job.until) <= pgwake.now() then
    return 'over';
  end if;
  perform pgwake.suspend_job(sleep_job.job_id, coalesce(v_held.until, sleep_job.until));
  return 'sleeps';
end
$$;

comment on function pgwake.sleep_job is
  'Has a running job sleep; returns sleeps, over or cancelled.';
revoke all on function pgwake.sleep_job from public;

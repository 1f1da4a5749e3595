-- Takes running jobs away from a worker that died or lost its lease, as crashes.
-- Internal: the caller holds the rows' locks.
--
-- Crashes 1 and 2 give the attempt back and the job is due again as it was. From crash
-- 3 on, all of them alone in quarantine, the attempt counts: the job is retried after
-- its backoff, or failed when its attempts or max_crashes (default 5) are used up. A
-- job whose cancellation had been asked for is cancelled.
create or replace function pgwake.crash_jobs(job_ids bigint[], message text)
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
  v_audience pgwake.audience := pgwake.get_audience();
  v_job record;
  v_policy record;
  v_delay interval;
  v_status text;
begin
  for v_job in
    select j.id, j.queue, j.kind, j.attempt, j.max_attempts, j.concurrency_key,
      least(j.crash_count, 2147483646) + 1 as crash_count, j.cancel_requested_at
    from pgwake.jobs_live as j
    where j.id = any (crash_jobs.job_ids)
    order by j.id
  loop
    select * into v_policy from pgwake.get_policy(v_job.queue, v_job.kind);
    update pgwake.jobs_live as j set crash_count = v_job.crash_count where j.id = v_job.id;
    if v_job.cancel_requested_at is not null then
      perform pgwake.end_job(v_job.id, 'cancelled', 'crashed', crash_jobs.message);
    elsif v_job.crash_count >= v_policy.max_crashes
      or (v_job.crash_count > 2 and v_job.attempt >= coalesce(v_job.max_attempts, v_policy.max_attempts))
    then
      perform pgwake.end_job(v_job.id, 'failed', 'crashed', crash_jobs.message);
    else
      v_delay := case when v_job.crash_count > 2 then
        pgwake.retry_delay(v_job.attempt, v_policy.backoff_base, v_policy.backoff_cap, v_policy.backoff_jitter)
      end;
      v_status := pgwake.status_after_attempt(
        v_job.concurrency_key, v_delay, v_policy.keep_order);
      update pgwake.jobs_live as j
      set status = v_status, lease_id = null, lease_expires_at = null, claimed_by = null, started_at = null,
        errors = pgwake.append_error(j.errors, j.attempt, j.claimed_by, 'crashed', crash_jobs.message),
        attempt = case when v_job.crash_count > 2 then j.attempt else greatest(j.attempt - 1, 0) end,
        run_at = coalesce(pgwake.now() + v_delay, j.run_at)
      where j.id = v_job.id;
      insert into pgwake.counts (queue, at, running_rows, waiting_rows)
      values (v_job.queue, pgwake.now(), -1, case v_status when 'waiting' then 1 end);
      if v_status = 'waiting' then
        perform pgwake.admit_next_jobs(array[v_job.queue], array[v_job.concurrency_key]);
      else
        perform pgwake.wake(v_job.queue);
      end if;
      if pgwake.is_announced(v_job.queue, v_audience) then
        perform pgwake.announce(array[
          pgwake.status_event(v_job.id, v_job.queue, v_job.kind, 'running', v_status)]);
      end if;
    end if;
  end loop;
end
$$;

comment on function pgwake.crash_jobs is
  'Internal: takes running jobs away from a dead worker, as crashes.';
revoke all on function pgwake.crash_jobs from public;

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
set search_path = ''
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
  v_audience pgwake.audience := pgwake.get_audience();
  v_job record;
begin
  for v_job in
    select j.id, j.queue, j.kind, j.attempt,
      least(j.crash_count, 2147483646) + 1 as crash_count, j.cancel_requested_at,
      coalesce(j.max_attempts, q.max_attempts, 20) as max_attempts,
      coalesce(q.max_crashes, 5) as max_crashes, q.backoff_base, q.backoff_cap
    from pgwake.jobs_live as j
    left join pgwake.queues as q on q.name = j.queue
    where j.id = any (crash_jobs.job_ids)
    order by j.id
  loop
    update pgwake.jobs_live as j set crash_count = v_job.crash_count where j.id = v_job.id;
    if v_job.cancel_requested_at is not null then
      perform pgwake.end_job(v_job.id, 'cancelled', 'crashed', crash_jobs.message);
    elsif v_job.crash_count >= v_job.max_crashes
      or (v_job.crash_count > 2 and v_job.attempt >= v_job.max_attempts)
    then
      perform pgwake.end_job(v_job.id, 'failed', 'crashed', crash_jobs.message);
    else
      update pgwake.jobs_live as j
      set status = 'pending', lease_id = null, lease_expires_at = null, claimed_by = null, started_at = null,
        errors = pgwake.append_error(j.errors, j.attempt, j.claimed_by, 'crashed', crash_jobs.message),
        attempt = case when v_job.crash_count > 2 then j.attempt else greatest(j.attempt - 1, 0) end,
        run_at = case
          when v_job.crash_count > 2 then
            pgwake.now() + pgwake.retry_delay(j.attempt, v_job.backoff_base, v_job.backoff_cap)
          else j.run_at
        end
      where j.id = v_job.id;
      insert into pgwake.tallies (queue, at, running_rows) values (v_job.queue, pgwake.now(), -1);
      perform pgwake.ring(v_job.queue);
      if pgwake.is_announced(v_job.queue, v_audience) then
        perform pgwake.announce(array[
          pgwake.status_event(v_job.id, v_job.queue, v_job.kind, 'running', 'pending')]);
      end if;
    end if;
  end loop;
end
$$;

comment on function pgwake.crash_jobs is
  'Internal: takes running jobs away from a dead worker, as crashes.';
revoke all on function pgwake.crash_jobs from public;

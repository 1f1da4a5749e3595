-- Gives a running job back that sleeps until run_at, as a snooze, or that waits for an
-- answer (null). Internal: the caller holds its lock, and has written what wakes it.
--
-- A stretch has ended well, so attempt, crash_count and bounce_count are 0: a year of
-- sleeps and deploys must not use them up. It has begun, so it expires no more. One
-- that waits gives its concurrency key's room up, under keep_order too.
create or replace function pgwake.suspend_job(job_id bigint, run_at timestamptz)
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
  v_job record;
begin
  update pgwake.jobs_live as j
  set status = case
      when suspend_job.run_at is null then 'waiting'
      else pgwake.status_after_attempt(
        j.concurrency_key, suspend_job.run_at - pgwake.now(),
        (select q.keep_order from pgwake.queues as q where q.name = j.queue))
    end,
    has_parents_left = case when suspend_job.run_at is null then true end,
    lease_id = null, lease_expires_at = null, claimed_by = null, started_at = null,
    attempt = 0, crash_count = 0, bounce_count = 0, run_at = coalesce(suspend_job.run_at, j.run_at),
    expires_at = null
  where j.id = suspend_job.job_id
  returning j.queue, j.kind, j.status, j.concurrency_key into v_job;
  insert into pgwake.counts (queue, at, running_rows, waiting_rows)
  values (v_job.queue, pgwake.now(), -1, case v_job.status when 'waiting' then 1 end);
  if v_job.status = 'waiting' and v_job.concurrency_key is not null then
    perform pgwake.admit_next_jobs(array[v_job.queue], array[v_job.concurrency_key]);
  end if;
  perform pgwake.wake(v_job.queue);
  if pgwake.is_announced(v_job.queue, pgwake.get_audience()) then
    perform pgwake.announce(array[
      pgwake.status_event(suspend_job.job_id, v_job.queue, v_job.kind, 'running', v_job.status)]);
  end if;
end
$$;

comment on function pgwake.suspend_job is
  'Internal: gives a running job back that sleeps or waits.';
revoke all on function pgwake.suspend_job from public;

-- Records a failed attempt of each job of a batch, and decides: another attempt, or
-- dead letter.
--
-- Parallel arrays; those after lease_ids may be left out, and so may single values
-- (null):
--   errors        the message, kept clipped in the job's errors
--   tracebacks    where it came from, kept clipped too
--   reasons       failed (default), timeout, or invalid: what a metric would tell apart; kept clipped too
--   retry_ins     delay before the next attempt; default retry_delay() with the backoff by policy; at most 10 years
--   retryables    false: straight to the dead letters
--
-- How many attempts there are says the job's max_attempts, else the policy: get_policy.
-- A job with a concurrency key waits for its turn again; in a queue with keep_order it
-- keeps the key meanwhile.
--
-- Returns an outcome each, in the order given: retry, failed, cancelled (its
-- cancellation had been asked for), lease_lost or no_such_job. An end (not a retry)
-- repeated after a lost answer is answered the same. Never raises for one job; raises
-- PW003 for arrays that don't pair up. Locks in id order; rides jobs_live_pkey.
create or replace function pgwake.fail_jobs(
  job_ids bigint[],
  lease_ids uuid[],
  errors text[] default null,
  tracebacks text[] default null,
  reasons text[] default null,
  retry_ins interval[] default null,
  retryables boolean[] default null
)
returns text[]
language plpgsql volatile
security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  v_outcomes text[];
  v_audience pgwake.audience := pgwake.get_audience();
  v_item record;
  v_job record;
  v_policy record;
  v_delay interval;
  v_status text;
  v_outcome text;
  v_retried text[] := '{}';
  v_waiting text[] := '{}';
begin
  perform pgwake.check_leases(fail_jobs.job_ids, fail_jobs.lease_ids);
  if exists (
    select from unnest(array[
      cardinality(fail_jobs.errors), cardinality(fail_jobs.tracebacks), cardinality(fail_jobs.reasons),
      cardinality(fail_jobs.retry_ins), cardinality(fail_jobs.retryables)]) as a(length)
    where a.length <> cardinality(fail_jobs.job_ids)
  ) then
    perform pgwake.raise_invalid(
      format('an array has not %s values', cardinality(fail_jobs.job_ids)),
      'Pass one value for each job id (null for none), or leave the array out.');
  end if;
  v_outcomes := array_fill(null::text, array[cardinality(fail_jobs.job_ids)]);
  for v_item in
    select u.id, u.lease_id, u.message, u.traceback, coalesce(u.reason, 'failed') as reason, u.retry_in,
      u.retryable, u.place
    from unnest(fail_jobs.job_ids, fail_jobs.lease_ids, fail_jobs.errors, fail_jobs.tracebacks,
                fail_jobs.reasons, fail_jobs.retry_ins, fail_jobs.retryables)
      with ordinality as u(id, lease_id, message, traceback, reason, retry_in, retryable, place)
    order by u.id
  loop
    select j.queue, j.kind, j.attempt, j.max_attempts, j.cancel_requested_at, j.concurrency_key
    into v_job
    from pgwake.jobs_live as j
    where j.id = v_item.id and j.lease_id = v_item.lease_id
    for update;

    if found then
      select * into v_policy from pgwake.get_policy(v_job.queue, v_job.kind);
    end if;
    if v_job.queue is null then
      v_outcome := pgwake.lease_outcome(v_item.id, v_item.lease_id);
      if v_outcome not in ('failed', 'cancelled', 'no_such_job') then
        v_outcome := 'lease_lost';
      end if;
    elsif v_job.cancel_requested_at is not null then
      v_outcome := 'cancelled';
      perform pgwake.end_job(v_item.id, 'cancelled', v_item.reason, v_item.message, v_item.traceback);
    elsif v_item.retryable is false or v_job.attempt >= coalesce(v_job.max_attempts, v_policy.max_attempts) then
      v_outcome := 'failed';
      perform pgwake.end_job(v_item.id, 'failed', v_item.reason, v_item.message, v_item.traceback);
    else
      v_outcome := 'retry';
      v_delay := case
        when v_item.retry_in is null then
          pgwake.retry_delay(v_job.attempt, v_policy.backoff_base, v_policy.backoff_cap, v_policy.backoff_jitter)
        else least(greatest(v_item.retry_in, interval '0'), interval '10 years')
      end;
      v_status := pgwake.status_after_attempt(v_job.concurrency_key, v_delay, v_policy.keep_order);
      update pgwake.jobs_live as j
      set status = v_status, lease_id = null, lease_expires_at = null, claimed_by = null, started_at = null,
        errors = pgwake.append_error(j.errors, j.attempt, j.claimed_by, v_item.reason, v_item.message, v_item.traceback),
        run_at = pgwake.now() + v_delay
      where j.id = v_item.id;
      v_retried := v_retried || v_job.queue;
      if v_status = 'waiting' then
        v_waiting := v_waiting || v_job.queue;
        perform pgwake.flag_keys(array[v_job.queue], array[v_job.concurrency_key]);
      else
        perform pgwake.wake(v_job.queue);
      end if;
      if pgwake.is_announced(v_job.queue, v_audience) then
        perform pgwake.announce(array[
          pgwake.status_event(v_item.id, v_job.queue, v_job.kind, 'running', v_status)]);
      end if;
    end if;
    v_outcomes[v_item.place] := v_outcome;
  end loop;
  insert into pgwake.counts (queue, at, running_rows, waiting_rows)
  select r.queue, pgwake.now(), -count(r.retried), nullif(count(r.waiting), 0)
  from (
    select u.queue, u.queue, null from unnest(v_retried) as u(queue)
    union all
    select u.queue, null, u.queue from unnest(v_waiting) as u(queue)
  ) as r(queue, retried, waiting)
  group by r.queue;
  return v_outcomes;
end
$$;

comment on function pgwake.fail_jobs is
  'Records a failed attempt of each job; returns retry, failed, cancelled, lease_lost '
  'or no_such_job for each.';
revoke all on function pgwake.fail_jobs from public;

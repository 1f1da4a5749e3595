-- Records a failed attempt of each job of a batch, and decides: another attempt, or
-- dead letter.
--
-- Parallel arrays; those after lease_ids may be left out, and so may single values
-- (null):
--   errors        the message, kept clipped in the job's errors
--   reasons       failed (default), timeout, or invalid: what a metric would tell apart; kept clipped too
--   retry_ins     delay before the next attempt; default retry_delay() with the queue's backoff; at most 10 years
--   retryables    false: straight to the dead letters
--   max_attempts  the limit that the worker knows for the kind; a job's own comes before it, the queue's after it, then 20
--
-- Returns an outcome each, in the order given: retry, failed, cancelled (its
-- cancellation had been asked for), lease_lost or no_such_job. An end (not a retry)
-- repeated after a lost answer is answered the same. Never raises for one job; raises
-- PW003 for arrays that don't pair up. Locks in id order; rides jobs_live_pkey.
create or replace function pgwake.fail_jobs(
  job_ids bigint[],
  lease_ids uuid[],
  errors text[] default null,
  reasons text[] default null,
  retry_ins interval[] default null,
  retryables boolean[] default null,
  max_attempts int[] default null
)
returns text[]
language plpgsql volatile
set search_path = ''
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
  v_outcome text;
  v_retried text[] := '{}';
begin
  perform pgwake.check_leases(fail_jobs.job_ids, fail_jobs.lease_ids);
  if exists (
    select from unnest(array[
      cardinality(fail_jobs.errors), cardinality(fail_jobs.reasons), cardinality(fail_jobs.retry_ins),
      cardinality(fail_jobs.retryables), cardinality(fail_jobs.max_attempts)]) as a(length)
    where a.length <> cardinality(fail_jobs.job_ids)
  ) then
    perform pgwake.raise_invalid(
      format('an array has not %s values', cardinality(fail_jobs.job_ids)),
      'Pass one value for each job id (null for none), or leave the array out.');
  end if;
  v_outcomes := array_fill(null::text, array[cardinality(fail_jobs.job_ids)]);
  for v_item in
    select u.id, u.lease_id, u.message, coalesce(u.reason, 'failed') as reason, u.retry_in, u.retryable,
      u.max_attempts, u.place
    from unnest(fail_jobs.job_ids, fail_jobs.lease_ids, fail_jobs.errors, fail_jobs.reasons,
                fail_jobs.retry_ins, fail_jobs.retryables, fail_jobs.max_attempts)
      with ordinality as u(id, lease_id, message, reason, retry_in, retryable, max_attempts, place)
    order by u.id
  loop
    select j.queue, j.kind, j.attempt, j.cancel_requested_at, q.backoff_base, q.backoff_cap,
      coalesce(j.max_attempts, v_item.max_attempts, q.max_attempts, 20) as max_attempts
    into v_job
    from pgwake.jobs_live as j
    left join pgwake.queues as q on q.name = j.queue
    where j.id = v_item.id and j.lease_id = v_item.lease_id
    for update of j;

    if not found then
      v_outcome := pgwake.lease_outcome(v_item.id, v_item.lease_id);
      if v_outcome not in ('failed', 'cancelled', 'no_such_job') then
        v_outcome := 'lease_lost';
      end if;
    elsif v_job.cancel_requested_at is not null then
      v_outcome := 'cancelled';
      perform pgwake.end_job(v_item.id, 'cancelled', v_item.reason, v_item.message);
    elsif v_item.retryable is false or v_job.attempt >= v_job.max_attempts then
      v_outcome := 'failed';
      perform pgwake.end_job(v_item.id, 'failed', v_item.reason, v_item.message);
    else
      v_outcome := 'retry';
      update pgwake.jobs_live as j
      set status = 'pending', lease_id = null, lease_expires_at = null, claimed_by = null, started_at = null,
        errors = pgwake.append_error(j.errors, j.attempt, j.claimed_by, v_item.reason, v_item.message),
        run_at = pgwake.now() + case
          when v_item.retry_in is null then
            pgwake.retry_delay(j.attempt, v_job.backoff_base, v_job.backoff_cap)
          else least(greatest(v_item.retry_in, interval '0'), interval '10 years')
        end
      where j.id = v_item.id;
      v_retried := v_retried || v_job.queue;
      perform pgwake.ring(v_job.queue);
      if pgwake.is_announced(v_job.queue, v_audience) then
        perform pgwake.announce(array[
          pgwake.status_event(v_item.id, v_job.queue, v_job.kind, 'running', 'pending')]);
      end if;
    end if;
    v_outcomes[v_item.place] := v_outcome;
  end loop;
  insert into pgwake.tallies (queue, at, running_rows)
  select r.queue, pgwake.now(), -count(*) from unnest(v_retried) as r(queue) group by r.queue;
  return v_outcomes;
end
$$;

comment on function pgwake.fail_jobs is
  'Records a failed attempt of each job; returns retry, failed, cancelled, lease_lost '
  'or no_such_job for each.';
revoke all on function pgwake.fail_jobs from public;

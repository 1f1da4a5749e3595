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
-- cancellation had been asked for), lease_lost or no_such_job. The same call repeated
-- after a lost answer is answered the same; a retry only if it has an error, and until
-- the job has another. Never raises for one job; raises PW003 for arrays that don't pair
-- up. Locks in id order, as complete_jobs; one statement locks, decides and writes the
-- retries. Rides jobs_live_pkey.
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
set enable_nestloop = off
set jit = off
as $$
#variable_conflict use_column
declare
  v_audience pgwake.audience := pgwake.get_audience();
  v_ids bigint[];
  v_outcomes text[];
  v_ended bigint[];
  v_ends text[];
  v_reasons text[];
  v_messages text[];
  v_tracebacks text[];
  v_queues text[];
  v_waiting_queues text[];
  v_waiting_keys text[];
  v_events text[];
begin
  perform pgwake.check_batch_arguments(fail_jobs.job_ids, fail_jobs.lease_ids);
  if cardinality(fail_jobs.job_ids) <> any (array[
    cardinality(fail_jobs.errors), cardinality(fail_jobs.tracebacks), cardinality(fail_jobs.reasons),
    cardinality(fail_jobs.retry_ins), cardinality(fail_jobs.retryables)])
  then
    perform pgwake.raise_invalid(
      format('an array has not %s values', cardinality(fail_jobs.job_ids)),
      'Pass one value for each job id (null for none), or leave the array out.');
  end if;

  with locked as materialized (
    select j.id, j.queue, j.kind, j.attempt, j.max_attempts, j.cancel_requested_at, j.concurrency_key,
      u.place, u.message, u.traceback, coalesce(u.reason, 'failed') as reason, u.retry_in, u.retryable
    from pgwake.jobs_live as j
    join unnest(
      fail_jobs.job_ids, fail_jobs.lease_ids, fail_jobs.errors, fail_jobs.tracebacks, fail_jobs.reasons,
      fail_jobs.retry_ins, fail_jobs.retryables)
      with ordinality as u(id, lease_id, message, traceback, reason, retry_in, retryable, place)
      on u.id = j.id and (u.lease_id = j.lease_id) is true
    where j.id = any (fail_jobs.job_ids)
    order by j.id
    for update of j
  ),
  policies as materialized (
    select d.queue, d.kind, p.*
    from (select distinct l.queue, l.kind from locked as l) as d
    cross join lateral pgwake.get_policy(d.queue, d.kind) as p
  ),
  decided as materialized (  -- the delay is drawn once
    select l.id, l.place, l.message, l.traceback, l.reason, l.concurrency_key, p.keep_order,
      case
        when l.cancel_requested_at is not null then 'cancelled'
        when l.retryable is false or l.attempt >= coalesce(l.max_attempts, p.max_attempts) then 'failed'
        else 'retry'
      end as outcome,
      case
        when l.retry_in is null then
          pgwake.retry_delay(l.attempt, p.backoff_base, p.backoff_cap, p.backoff_jitter)
        else least(greatest(l.retry_in, interval '0'), interval '10 years')
      end as delay
    from locked as l
    join policies as p on p.queue = l.queue and p.kind = l.kind
  ),
  retried as (
    update pgwake.jobs_live as j
    set status = pgwake.status_after_attempt(d.concurrency_key, d.delay, d.keep_order),
      lease_id = null, lease_expires_at = null, claimed_by = null, started_at = null,
      errors = pgwake.append_error(j.errors, j.attempt, j.claimed_by, d.reason, d.message, d.traceback),
      run_at = pgwake.now() + d.delay
    from decided as d
    where j.id = any (fail_jobs.job_ids) and d.id = j.id and d.outcome = 'retry'
    returning j.id, j.queue, j.kind, j.status, j.concurrency_key
  ),
  counted as (
    insert into pgwake.counts (queue, at, running_rows, waiting_rows, retried)
    select r.queue, pgwake.now(), -count(*), nullif(count(*) filter (where r.status = 'waiting'), 0), count(*)
    from retried as r
    group by r.queue
  )
  select o.*, r.*
  into v_ids, v_outcomes, v_ended, v_ends, v_reasons, v_messages, v_tracebacks,
    v_queues, v_waiting_queues, v_waiting_keys, v_events
  from (
    select array_agg(d.id order by d.place), array_agg(d.outcome order by d.place),
      array_agg(d.id) filter (where d.outcome <> 'retry'), array_agg(d.outcome) filter (where d.outcome <> 'retry'),
      array_agg(d.reason) filter (where d.outcome <> 'retry'),
      array_agg(d.message) filter (where d.outcome <> 'retry'),
      array_agg(d.traceback) filter (where d.outcome <> 'retry')
    from decided as d
  ) as o
  cross join (
    select array_agg(r.queue) filter (where r.status = 'pending'),
      array_agg(r.queue) filter (where r.status = 'waiting'),
      array_agg(r.concurrency_key) filter (where r.status = 'waiting'),
      array_agg(pgwake.status_event(r.id, r.queue, r.kind, 'running', r.status))
        filter (where pgwake.is_announced(r.queue, v_audience))
    from retried as r
  ) as r;
  if v_queues is not null then
    perform pgwake.wake(q.name) from (select distinct u.name from unnest(v_queues) as u(name)) as q;
  end if;
  if v_waiting_keys is not null then
    perform pgwake.admit_next_jobs(v_waiting_queues, v_waiting_keys);
  end if;
  if v_events is not null then
    perform pgwake.announce(v_events);
  end if;
  if v_ended is not null then
    perform pgwake.end_jobs(v_ended, v_ends, v_reasons, v_messages, v_tracebacks);
  end if;

  if cardinality(v_ids) = cardinality(fail_jobs.job_ids) then
    return v_outcomes;
  end if;
  return array(
    select coalesce(
      d.outcome, pgwake.repeated_outcome(u.id, u.lease_id, coalesce(u.reason, 'failed'), u.message, u.traceback))
    from unnest(
      fail_jobs.job_ids, fail_jobs.lease_ids, fail_jobs.reasons, fail_jobs.errors, fail_jobs.tracebacks)
      with ordinality as u(id, lease_id, reason, message, traceback, place)
    left join unnest(v_ids, v_outcomes) as d(id, outcome) on d.id = u.id
    order by u.place
  );
end
$$;

comment on function pgwake.fail_jobs is
  'Records a failed attempt of each job; returns retry, failed, cancelled, lease_lost '
  'or no_such_job for each.';
revoke all on function pgwake.fail_jobs from public;

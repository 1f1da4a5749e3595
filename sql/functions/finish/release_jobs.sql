-- Gives running jobs back without a result; the attempt is not counted. One reason for
-- all:
--   unstarted     (default) never begun; due again as it was
--   snooze        put off by its handler
--   shutdown      begun, and cut short by the end of its worker's grace; due again as it
--                 was. Counts a bounce, and from the 20th on the attempt counts after all
--   unknown_kind  nobody here handles it: counts a bounce, by its kind too, and is due
--                 later, 1 second doubling up to 5 minutes
--   refused       it has failed for good, but a user's hook has refused that: counts a
--                 bounce, and is due later like those of an unknown kind
--
-- errors: what to keep in the errors of each, under that reason; null: nothing.
-- delays: how long from now until each is due, 0 to 10 years; null: as the reason says.
-- A job with a concurrency key that is not due at once waits for its turn again, unless
-- its queue keeps the order.
--
-- Returns an outcome each, in the order given: released, cancel_requested (it had been
-- asked for, so the job is cancelled instead; answered the same when it is repeated
-- after a lost answer), lease_lost or no_such_job. Never raises for one job; PW003 for
-- arrays that don't pair up and for an unknown reason. Locks in id order; rides
-- jobs_live_pkey.
create or replace function pgwake.release_jobs(
  job_ids bigint[], lease_ids uuid[], reason text default 'unstarted', delays interval[] default null,
  errors text[] default null
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
  v_released bigint[];
  v_cancelled bigint[];
  v_queues text[];
  v_waiting_queues text[];
  v_waiting_keys text[];
  v_unknown_kinds text[];
  v_events text[];
  v_audience pgwake.audience := pgwake.get_audience();
begin
  perform pgwake.check_batch_arguments(release_jobs.job_ids, release_jobs.lease_ids);
  if release_jobs.reason is null
    or release_jobs.reason not in ('unstarted', 'snooze', 'shutdown', 'unknown_kind', 'refused')
  then
    perform pgwake.raise_invalid(
      format('reason is %L', release_jobs.reason),
      'Use unstarted, snooze, shutdown, unknown_kind or refused.');
  end if;
  if cardinality(release_jobs.errors) <> cardinality(release_jobs.job_ids) then
    perform pgwake.raise_invalid(
      format('%s job ids but %s errors', cardinality(release_jobs.job_ids), cardinality(release_jobs.errors)),
      'Pass one error for each job id (null for none), or leave errors out.');
  end if;
  if cardinality(release_jobs.delays) <> cardinality(release_jobs.job_ids) then
    perform pgwake.raise_invalid(
      format('%s job ids but %s delays', cardinality(release_jobs.job_ids), cardinality(release_jobs.delays)),
      'Pass one delay for each job id (null for none), or leave delays out.');
  end if;

  with locked as materialized (
    select j.id, j.queue, j.concurrency_key, j.cancel_requested_at, u.error,
      coalesce(
        case when u.delay is not null then
          least(greatest(u.delay, interval '0'), interval '10 years')
        end,
        case when release_jobs.reason in ('unknown_kind', 'refused') then
          least(interval '1 second' * 2 ^ least(j.bounce_count, 20), interval '5 minutes')
        end) as delay
    from pgwake.jobs_live as j
    join unnest(release_jobs.job_ids, release_jobs.lease_ids, release_jobs.delays, release_jobs.errors)
      as u(id, lease_id, delay, error) on u.id = j.id and (u.lease_id = j.lease_id) is true
    where j.id = any (release_jobs.job_ids)
    order by j.id
    for update of j
  ),
  mine as materialized (
    select l.id, l.error, l.delay,
      pgwake.status_after_attempt(l.concurrency_key, l.delay, case when l.concurrency_key is not null then
        (select q.keep_order from pgwake.queues as q where q.name = l.queue)
      end) as status
    from locked as l
    where l.cancel_requested_at is null
  ),
  released as (
    update pgwake.jobs_live as j
    set status = m.status, lease_id = null, lease_expires_at = null, claimed_by = null, started_at = null,
      attempt = j.attempt - case
        when release_jobs.reason = 'shutdown' and j.bounce_count >= 19 then 0
        else least(j.attempt, 1)
      end,
      bounce_count = case
        when release_jobs.reason in ('unstarted', 'snooze') then j.bounce_count
        else least(j.bounce_count, 2147483646) + 1
      end,
      errors = case
        when m.error is null then j.errors
        else pgwake.append_error(j.errors, j.attempt, j.claimed_by, release_jobs.reason, m.error)
      end,
      run_at = coalesce(pgwake.now() + m.delay, j.run_at),
      expires_at = case when release_jobs.reason in ('unstarted', 'unknown_kind') then j.expires_at end
    from mine as m
    where j.id = any (release_jobs.job_ids) and m.id = j.id
    returning j.id, j.queue, j.kind, j.status, j.concurrency_key
  ),
  counted as (
    insert into pgwake.counts (queue, at, running_rows, waiting_rows)
    select r.queue, pgwake.now(), -count(*), nullif(count(*) filter (where r.status = 'waiting'), 0)
    from released as r
    group by r.queue
  )
  select array_agg(r.id), array_agg(r.queue),
    array_agg(r.queue) filter (where r.status = 'waiting'),
    array_agg(r.concurrency_key) filter (where r.status = 'waiting'),
    array_agg(r.kind) filter (where release_jobs.reason = 'unknown_kind'),
    array_agg(pgwake.status_event(r.id, r.queue, r.kind, 'running', r.status))
      filter (where pgwake.is_announced(r.queue, v_audience)),
    array(select l.id from locked as l where l.cancel_requested_at is not null)
  into v_released, v_queues, v_waiting_queues, v_waiting_keys, v_unknown_kinds, v_events, v_cancelled
  from released as r;
  if v_waiting_keys is not null then
    perform pgwake.admit_next_jobs(v_waiting_queues, v_waiting_keys);
  end if;
  if v_unknown_kinds is not null then
    perform pgwake.count_bounces(v_unknown_kinds);
  end if;
  if v_queues is not null then
    perform pgwake.wake(q.name) from (select distinct u.name from unnest(v_queues) as u(name)) as q;
  end if;
  if v_events is not null then
    perform pgwake.announce(v_events);
  end if;

  if cardinality(v_released) = cardinality(release_jobs.job_ids) then
    return array_fill('released'::text, array[cardinality(v_released)]);
  end if;
  perform pgwake.end_job(c.id, 'cancelled') from unnest(v_cancelled) as c(id);
  return array(
    select
      case
        when u.id = any (v_released) then 'released'
        when u.id = any (v_cancelled) then 'cancel_requested'
        else case pgwake.lease_outcome(u.id, u.lease_id)
          when 'cancelled' then 'cancel_requested'
          when 'no_such_job' then 'no_such_job'
          else 'lease_lost'
        end
      end
    from unnest(release_jobs.job_ids, release_jobs.lease_ids) with ordinality as u(id, lease_id, place)
    order by u.place
  );
end
$$;

comment on function pgwake.release_jobs is
  'Gives running jobs back unburnt; returns released, cancel_requested, lease_lost or '
  'no_such_job for each.';
revoke all on function pgwake.release_jobs from public;

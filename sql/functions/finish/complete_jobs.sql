-- Completes a batch of running jobs: parallel arrays of ids, lease ids and, if wanted,
-- results.
--
-- Returns an outcome each, in the order given: completed, lease_lost or no_such_job.
-- The same call repeated after a lost answer answers the same. Never raises for one
-- job; raises PW003 for arrays that don't pair up, and the check
-- jobs_result_is_at_most_1_mib (23514) for a result that is too large, with nothing
-- changed.
--
-- Flags the jobs' concurrency keys and children, wakes queues with max_running, and
-- sends webhooks.
--
-- Rides jobs_live_pkey in id order, so that batches can't deadlock. The fence is read
-- by primary key alone: a predicate on status would let the planner ride
-- jobs_lease_idx, through all its dead entries.
create or replace function pgwake.complete_jobs(
  job_ids bigint[], lease_ids uuid[], results jsonb[] default null
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
  v_now timestamptz := pgwake.now();
  v_slot smallint := pgwake.finished_slot(v_now);
  v_audience pgwake.audience := pgwake.get_audience();
  v_done bigint[];
  v_queues text[];
  v_keys text[];
  v_limited text[];
  v_parents bigint[];
  v_hooked bigint[];
  v_events text[];
begin
  perform pgwake.check_batch_arguments(complete_jobs.job_ids, complete_jobs.lease_ids);
  if cardinality(complete_jobs.results) <> cardinality(complete_jobs.job_ids) then
    perform pgwake.raise_invalid(
      format('%s job ids but %s results', cardinality(complete_jobs.job_ids),
             cardinality(complete_jobs.results)),
      'Pass one result for each job id (null for none), or leave results out.');
  end if;

  begin
    with done as (
      delete from pgwake.jobs_live as j
      where j.id = any (complete_jobs.job_ids)
        and ((j.id, j.lease_id) in (
          select u.id, u.lease_id
          from unnest(complete_jobs.job_ids, complete_jobs.lease_ids) as u(id, lease_id)
        )) is true  -- a filter: a join might visit the jobs in the order of its hash table
      returning j.*
    ),
    kept as (
      insert into pgwake.jobs_finished
        (id, queue, kind, status, priority, run_at, attempt, max_attempts, payload, metadata, unique_key,
         concurrency_key, has_children, depends_on, on_parent_failure, webhook, progress, lease_id, claimed_by,
         crash_count, bounce_count, cancel_requested_at, created_at, started_at,
         finished_at, finished_slot, result, errors)
      select d.id, d.queue, d.kind, 'completed', d.priority, d.run_at, d.attempt, d.max_attempts, d.payload,
        d.metadata, d.unique_key, d.concurrency_key, d.has_children, d.depends_on, d.on_parent_failure, d.webhook,
        d.progress, d.lease_id, d.claimed_by, d.crash_count, d.bounce_count,
        d.cancel_requested_at, d.created_at, d.started_at, v_now, v_slot, u.result, d.errors
      from done as d
      join unnest(complete_jobs.job_ids, complete_jobs.results) as u(id, result) on u.id = d.id
      returning id, queue, kind, run_at, started_at, concurrency_key, has_children, webhook
    ),
    counted as (
      insert into pgwake.counts
        (queue, at, completed, live_rows, running_rows, completed_rows, finished_slot, queue_ms, execution_ms)
      select k.queue, v_now, count(*), -count(*), -count(*), count(*), v_slot,
        1000 * sum(greatest(extract(epoch from k.started_at - k.run_at), 0)),
        1000 * sum(greatest(extract(epoch from v_now - k.started_at), 0))
      from kept as k
      group by k.queue
    )
    select
      array_agg(k.id),
      array_agg(k.queue) filter (where k.concurrency_key is not null),
      array_agg(k.concurrency_key) filter (where k.concurrency_key is not null),
      array_agg(pgwake.status_event(k.id, k.queue, k.kind, 'running', 'completed'))
        filter (where pgwake.is_announced(k.queue, v_audience)),
      array_agg(k.queue) filter (where k.queue = any (array(
        select q.name from pgwake.queues as q where q.max_running is not null))),
      array_agg(k.id) filter (where k.has_children),
      array_agg(k.id) filter (where k.webhook is not null or k.queue = any (array(
        select q.name from pgwake.queues as q where q.webhook is not null)))
    into v_done, v_queues, v_keys, v_events, v_limited, v_parents, v_hooked
    from kept as k;
  exception when unique_violation then
    -- An ended job has one of these ids; or a hook of the user's refuses.
    if pgwake.renumber_ended_jobs(complete_jobs.job_ids) = 0 then
      raise;
    end if;
    return pgwake.complete_jobs(complete_jobs.job_ids, complete_jobs.lease_ids, complete_jobs.results);
  end;
  if v_events is not null then
    perform pgwake.announce(v_events);
  end if;
  if v_limited is not null then
    perform pgwake.wake(l.queue) from (select distinct l.queue from unnest(v_limited) as l(queue)) as l;
  end if;
  if v_keys is not null then
    perform pgwake.flag_keys(v_queues, v_keys);
  end if;
  if v_parents is not null then
    perform pgwake.flag_children(v_parents, false);
  end if;
  if v_hooked is not null then
    perform pgwake.send_webhooks(v_hooked);
  end if;

  if cardinality(v_done) = cardinality(complete_jobs.job_ids) then
    return array_fill('completed'::text, array[cardinality(v_done)]);
  end if;
  return array(
    select
      case
        when u.id = any (v_done) then 'completed'
        when o.outcome in ('completed', 'no_such_job') then o.outcome
        else 'lease_lost'
      end
    from unnest(complete_jobs.job_ids, complete_jobs.lease_ids) with ordinality as u(id, lease_id, place)
    cross join lateral (
      select case when u.id = any (v_done) then null else pgwake.lease_outcome(u.id, u.lease_id) end
    ) as o(outcome)
    order by u.place
  );
end
$$;

comment on function pgwake.complete_jobs is
  'Completes a batch of running jobs; returns completed, lease_lost or no_such_job '
  'for each.';
revoke all on function pgwake.complete_jobs from public;

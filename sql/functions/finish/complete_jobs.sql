-- Completes a batch of running jobs: parallel arrays of ids, lease ids and, if wanted,
-- results.
--
-- Returns an outcome each, in the order given: completed, lease_lost or no_such_job.
-- The same call repeated after a lost answer answers the same. Never raises for one
-- job; raises PW003 for arrays that don't pair up, and the check
-- jobs_result_is_at_most_1_mib (23514) for a result that is too large, with nothing
-- changed.
--
-- One statement does all for plain jobs; what others are to hear of, tell_ends sends.
--
-- Rides jobs_live_pkey and joins by merging, so in id order: batches can't deadlock. The
-- fence is a filter ("is true"): a predicate on status would let the planner ride
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
set enable_hashjoin = off
set enable_mergejoin = on
set jit = off
as $$
#variable_conflict use_column
declare
  v_now timestamptz := pgwake.now();
  v_done bigint[];
  v_told pgwake.ended_job[];
begin
  if cardinality(complete_jobs.job_ids) <> cardinality(complete_jobs.lease_ids)
    or array_ndims(complete_jobs.job_ids) > 1 or array_ndims(complete_jobs.lease_ids) > 1
  then
    perform pgwake.check_batch_arguments(complete_jobs.job_ids, complete_jobs.lease_ids);
  end if;
  if cardinality(complete_jobs.results) <> cardinality(complete_jobs.job_ids) then
    perform pgwake.raise_invalid(
      format('%s job ids but %s results', cardinality(complete_jobs.job_ids),
             cardinality(complete_jobs.results)),
      'Pass one result for each job id (null for none), or leave results out.');
  end if;

  begin
    with ring as materialized (
      select pgwake.ring_slot(v_now, i.width) as slot from pgwake.installation as i
    ),
    special as materialized (  -- queues whose ends concern somebody, or whose payloads are not kept
      select
        bool_or(q.max_running is not null or q.webhook is not null or q.status_events <> 'watched') as has_hearers,
        array_agg(q.name) filter (where q.drop_payloads) as dropping
      from pgwake.queues as q
      where q.max_running is not null or q.webhook is not null or q.status_events <> 'watched' or q.drop_payloads
    ),
    done as (
      delete from pgwake.jobs_live as j
      using unnest(complete_jobs.job_ids, complete_jobs.lease_ids, complete_jobs.results) as u(id, lease_id, result)
      where j.id = any (complete_jobs.job_ids) and u.id = j.id and (u.lease_id = j.lease_id) is true
      returning j.*, u.result as new_result, j.queue = any ((select s.dropping from special as s)::text[]) as drops
    ),
    kept as (
      insert into pgwake.jobs_finished
        (id, queue, kind, status, priority, run_at, attempt, max_attempts, payload, metadata, unique_key,
         concurrency_key, has_children, depends_on, on_parent_failure, webhook, progress, lease_id, claimed_by,
         crash_count, bounce_count, cancel_requested_at, created_at, started_at,
         finished_at, finished_slot, result, errors, is_payload_dropped, steps)
      select d.id, d.queue, d.kind, 'completed', d.priority, d.run_at, d.attempt, d.max_attempts,
        case when d.drops then '{}' else d.payload end,
        d.metadata, d.unique_key, d.concurrency_key, d.has_children, d.depends_on, d.on_parent_failure, d.webhook,
        d.progress, d.lease_id, d.claimed_by, d.crash_count, d.bounce_count,
        d.cancel_requested_at, d.created_at, d.started_at, v_now, (select ring.slot from ring), d.new_result, d.errors,
        nullif(d.drops, false), case when d.has_steps then pgwake.take_steps(d.id) end
      from done as d
      returning id, queue, kind, run_at, started_at, concurrency_key, has_children, webhook
    ),
    counted as (
      insert into pgwake.counts
        (queue, at, completed, live_rows, running_rows, completed_rows, finished_slot, queue_ms, execution_ms)
      select k.queue, v_now, count(*), -count(*), -count(*), count(*), (select ring.slot from ring),
        1000 * sum(greatest(date_part('epoch', k.started_at - k.run_at), 0)),
        1000 * sum(greatest(date_part('epoch', v_now - k.started_at), 0))
      from kept as k
      group by k.queue
    )
    select array_agg(k.id),
      array_agg(
        row(k.id, k.queue, k.kind, 'running', 'completed', k.concurrency_key, k.has_children, k.webhook)::pgwake.ended_job)
        filter (where k.concurrency_key is not null or k.has_children or k.webhook is not null
          or k.kind = any (array(select w.kind from pgwake.kind_waiters as w)) or (
          select pgwake.is_watched() or s.has_hearers from special as s))
    into v_done, v_told
    from kept as k;
  exception when unique_violation then
    -- An ended job has one of these ids; or a hook of the user's refuses.
    if pgwake.renumber_ended_jobs(complete_jobs.job_ids) = 0 then
      raise;
    end if;
    return pgwake.complete_jobs(complete_jobs.job_ids, complete_jobs.lease_ids, complete_jobs.results);
  end;
  if v_told is not null then
    perform pgwake.tell_ends(v_told);
  end if;

  if cardinality(v_done) = cardinality(complete_jobs.job_ids) then
    return array_fill('completed'::text, array[cardinality(v_done)]);
  end if;
  -- Looked at here, since a batch that is all done names no job twice, and has no nulls.
  perform pgwake.check_batch_arguments(complete_jobs.job_ids, complete_jobs.lease_ids);
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

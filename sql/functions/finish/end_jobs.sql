-- Moves live jobs to the leaves of their final statuses: completed, failed or cancelled.
-- Internal: the caller has decided, holds the rows' locks and has tested the fences.
--
-- Parallel arrays, of one job each; a job is named once. The error, unless its reason is
-- null, is kept in the job's errors with the job's attempt and worker. Counts, and calls
-- tell_ends. Rides jobs_live_pkey.
create or replace function pgwake.end_jobs(
  job_ids bigint[], new_statuses text[], reasons text[], messages text[], tracebacks text[]
)
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set enable_nestloop = off
set jit = off
as $$
declare
  v_now timestamptz := pgwake.now();
  v_slot smallint := pgwake.finished_slot(v_now);
  v_told pgwake.ended_job[];
begin
  begin
    with given as materialized (
      select u.id, u.new_status, u.reason, u.message, u.traceback
      from unnest(end_jobs.job_ids, end_jobs.new_statuses, end_jobs.reasons, end_jobs.messages, end_jobs.tracebacks)
        as u(id, new_status, reason, message, traceback)
    ),
    ended as (
      delete from pgwake.jobs_live as j where j.id = any (end_jobs.job_ids) returning j.*
    ),
    fingerprints as materialized (  -- of a cause that many have, once
      select d.kind, d.message, pgwake.error_fingerprint(d.kind, d.message) as fingerprint
      from (
        select distinct e.kind, coalesce(g.message, '') as message
        from ended as e join given as g on g.id = e.id
        where g.new_status = 'failed'
      ) as d
    ),
    failed as (
      insert into pgwake.jobs_failed
        (id, queue, kind, status, priority, run_at, attempt, max_attempts, lease_id, claimed_by, started_at,
         finished_at, created_at, crash_count, bounce_count, has_children, cancel_requested_at, unique_key,
         concurrency_key, fingerprint, on_parent_failure, webhook, depends_on, payload, metadata, progress, errors,
         steps)
      select e.id, e.queue, e.kind, g.new_status, e.priority, e.run_at, e.attempt, e.max_attempts, e.lease_id,
        e.claimed_by, e.started_at, v_now, e.created_at, e.crash_count, e.bounce_count, e.has_children,
        e.cancel_requested_at, e.unique_key, e.concurrency_key, f.fingerprint, e.on_parent_failure, e.webhook,
        e.depends_on, e.payload, e.metadata, e.progress,
        case when g.reason is null then e.errors
          else pgwake.append_error(e.errors, e.attempt, e.claimed_by, g.reason, g.message, g.traceback) end,
        case when e.has_steps then pgwake.take_steps(e.id) end
      from ended as e
      join given as g on g.id = e.id
      join fingerprints as f on f.kind = e.kind and f.message = coalesce(g.message, '')
      where g.new_status = 'failed'
    ),
    finished as (
      insert into pgwake.jobs_finished
        (id, queue, kind, status, priority, run_at, attempt, max_attempts, lease_id, claimed_by, started_at,
         finished_at, created_at, crash_count, bounce_count, finished_slot, has_children, cancel_requested_at,
         unique_key, concurrency_key, on_parent_failure, webhook, depends_on, payload, is_payload_dropped, metadata,
         progress, errors, steps)
      select e.id, e.queue, e.kind, g.new_status, e.priority, e.run_at, e.attempt, e.max_attempts, e.lease_id,
        e.claimed_by, e.started_at, v_now, e.created_at, e.crash_count, e.bounce_count, v_slot, e.has_children,
        e.cancel_requested_at, e.unique_key, e.concurrency_key, e.on_parent_failure, e.webhook, e.depends_on,
        case when p.is_dropped then '{}' else e.payload end, p.is_dropped, e.metadata, e.progress,
        case when g.reason is null then e.errors
          else pgwake.append_error(e.errors, e.attempt, e.claimed_by, g.reason, g.message, g.traceback) end,
        case when e.has_steps then pgwake.take_steps(e.id) end
      from ended as e
      join given as g on g.id = e.id
      cross join lateral (
        select case when g.new_status = 'completed' and e.queue = any (array(
          select q.name from pgwake.queues as q where q.drop_payloads)) then true end
      ) as p(is_dropped)
      where g.new_status <> 'failed'
    ),
    told as (
      select e.id, e.queue, e.kind, e.status as old_status, g.new_status, e.concurrency_key, e.has_children, e.webhook
      from ended as e
      join given as g on g.id = e.id
    ),
    counted as (
      insert into pgwake.counts
        (queue, at, completed, failed, cancelled, live_rows, waiting_rows, running_rows, failed_rows,
         completed_rows, cancelled_rows, finished_slot)
      select s.queue, v_now, s.completed, s.failed, s.cancelled, -s.ended, -s.waiting, -s.running, s.failed,
        s.completed, s.cancelled, case when num_nonnulls(s.completed, s.cancelled) > 0 then v_slot end
      from (
        select t.queue, count(*) as ended,
          nullif(count(*) filter (where t.new_status = 'completed'), 0) as completed,
          nullif(count(*) filter (where t.new_status = 'failed'), 0) as failed,
          nullif(count(*) filter (where t.new_status = 'cancelled'), 0) as cancelled,
          nullif(count(*) filter (where t.old_status = 'waiting'), 0) as waiting,
          nullif(count(*) filter (where t.old_status = 'running'), 0) as running
        from told as t
        group by t.queue
      ) as s
    )
    select array_agg(
      row(t.id, t.queue, t.kind, t.old_status, t.new_status, t.concurrency_key, t.has_children, t.webhook)::pgwake.ended_job)
      filter (where t.concurrency_key is not null or t.has_children or t.webhook is not null
        or t.kind = any (array(select w.kind from pgwake.kind_waiters as w)) or (
        select pgwake.is_watched() or exists (
          select from pgwake.queues as q
          where q.max_running is not null or q.webhook is not null or q.status_events <> 'watched')))
    into v_told
    from told as t;
  exception when unique_violation then
    -- as in complete_jobs
    if pgwake.renumber_ended_jobs(end_jobs.job_ids) = 0 then
      raise;
    end if;
    perform pgwake.end_jobs(
      end_jobs.job_ids, end_jobs.new_statuses, end_jobs.reasons, end_jobs.messages, end_jobs.tracebacks);
    return;
  end;

  if v_told is not null then
    perform pgwake.tell_ends(v_told);
  end if;
end
$$;

comment on function pgwake.end_jobs is
  'Internal: moves live jobs to the leaves of their final statuses.';
revoke all on function pgwake.end_jobs from public;

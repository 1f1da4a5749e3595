-- Moves one live job to the leaf of its final status: completed, failed or cancelled.
-- Internal: the caller has decided, holds the row's lock and has tested the fence.
--
-- The error, if any, is kept in the job's errors with the job's attempt and worker.
-- Counts, announces, flags the job's concurrency key and its children, sends its
-- webhook, and wakes a queue with max_running when what ends was running.
create or replace function pgwake.end_job(
  job_id bigint, new_status text, reason text default null, message text default null,
  traceback text default null
)
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
  v_job pgwake.jobs_live;
  v_old_status text;
begin
  begin
    delete from pgwake.jobs_live as j where j.id = end_job.job_id returning j.* into strict v_job;

    v_old_status := v_job.status;
    v_job.status := end_job.new_status;
    v_job.finished_at := pgwake.now();
    v_job.lease_expires_at := null;
    v_job.has_parents_left := null;
    if end_job.reason is not null then
      v_job.errors := pgwake.append_error(
        v_job.errors, v_job.attempt, v_job.claimed_by, end_job.reason, end_job.message,
        end_job.traceback);
    end if;
    if end_job.new_status = 'failed' then
      v_job.fingerprint := pgwake.error_fingerprint(v_job.kind, end_job.message);
      insert into pgwake.jobs_failed select v_job.*;
    else
      v_job.finished_slot := pgwake.finished_slot(v_job.finished_at);
      insert into pgwake.jobs_finished select v_job.*;
    end if;
  exception when unique_violation then
    -- as in complete_jobs
    if pgwake.renumber_ended_jobs(array[end_job.job_id]) = 0 then
      raise;
    end if;
    perform pgwake.end_job(
      end_job.job_id, end_job.new_status, end_job.reason, end_job.message, end_job.traceback);
    return;
  end;

  insert into pgwake.counts
    (queue, at, completed, failed, cancelled, live_rows, waiting_rows, running_rows, failed_rows,
     completed_rows, cancelled_rows, finished_slot)
  select v_job.queue, v_job.finished_at, s.completed, s.failed, s.cancelled, -1,
    case v_old_status when 'waiting' then -1 end, case v_old_status when 'running' then -1 end,
    s.failed, s.completed, s.cancelled, v_job.finished_slot
  from (
    select case v_job.status when 'completed' then 1 end, case v_job.status when 'failed' then 1 end,
      case v_job.status when 'cancelled' then 1 end
  ) as s(completed, failed, cancelled);
  if v_job.concurrency_key is not null and v_old_status <> 'waiting' then
    perform pgwake.flag_keys(array[v_job.queue], array[v_job.concurrency_key]);
  end if;
  if v_job.has_children then
    perform pgwake.flag_children(array[v_job.id], v_job.status <> 'completed');
  end if;
  if v_job.webhook is not null
    or exists (select from pgwake.queues as q where q.webhook is not null and q.name = v_job.queue)
  then
    perform pgwake.send_webhooks(array[v_job.id]);
  end if;
  if v_old_status = 'running' then
    perform pgwake.wake(q.name) from pgwake.queues as q where q.max_running is not null and q.name = v_job.queue;
  end if;
  if pgwake.is_announced(v_job.queue, pgwake.get_audience()) then
    perform pgwake.announce(array[
      pgwake.status_event(v_job.id, v_job.queue, v_job.kind, v_old_status, v_job.status)]);
  end if;
end
$$;

comment on function pgwake.end_job is
  'Internal: moves a live job to the leaf of its final status.';
revoke all on function pgwake.end_job from public;

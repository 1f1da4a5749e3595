-- Makes a failed or cancelled job pending again (waiting, if it has a concurrency key or
-- depends on others), due now, with all its attempts before it: attempt, crash_count and
-- bounce_count are 0, its errors are kept. One that depends on others waits for those of
-- them that are live, whatever became of the rest and becomes of these: its
-- on_parent_failure is run now. Its steps stay done: see retry_from_step.
--
-- Raises PW001 no such job; PW003 if it is in another state; PW005 if a live job has
-- its unique key by now, with that job's id in the detail. Rides the primary keys of
-- the leaves.
create or replace function pgwake.retry_job(job_id bigint)
returns void
language plpgsql volatile
security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
  v_job pgwake.jobs_live;
  v_old_status text;
  v_old_slot smallint;
begin
  delete from pgwake.jobs_failed as j where j.id = retry_job.job_id returning j.* into v_job;
  if not found then
    delete from pgwake.jobs_finished as j
    where j.id = retry_job.job_id and j.status = 'cancelled'
    returning j.* into v_job;
  end if;
  if not found then
    select j.status || case when j.is_payload_dropped then ', and its payload was dropped' else '' end
    into v_old_status
    from pgwake.jobs as j
    where j.id = retry_job.job_id;
    if v_old_status is null then
      perform pgwake.raise_outcome(retry_job.job_id, 'no_such_job');
    end if;
    perform pgwake.raise_invalid(
      format('job %s is %s', retry_job.job_id, v_old_status),
      'Only failed and cancelled jobs can be retried; enqueue a new one instead.');
  end if;

  v_old_status := v_job.status;
  v_old_slot := v_job.finished_slot;
  if v_job.depends_on is not null then
    v_job.on_parent_failure := 'run';
    v_job.has_parents_left := true;
  end if;
  v_job.has_children := null;
  if v_job.steps is not null then
    perform pgwake.put_back_steps(v_job.id, v_job.steps);
    v_job.has_steps := true;
    v_job.steps := null;
  end if;
  v_job.status := case
    when num_nonnulls(v_job.concurrency_key, v_job.has_parents_left) = 0 then 'pending' else 'waiting' end;
  v_job.fingerprint := null;
  v_job.run_at := pgwake.now();
  v_job.attempt := 0;
  v_job.crash_count := 0;
  v_job.bounce_count := 0;
  v_job.lease_id := null;
  v_job.claimed_by := null;
  v_job.cancel_requested_at := null;
  v_job.started_at := null;
  v_job.finished_at := null;
  v_job.finished_slot := null;
  insert into pgwake.jobs_live select v_job.* on conflict do nothing;
  if not found then
    raise exception using
      errcode = 'PW005',
      message = format('a live job of kind %s has the unique key %L', v_job.kind, v_job.unique_key),
      detail = format('job %s', (
        select j.id from pgwake.jobs_live as j
        where j.kind = v_job.kind and j.unique_key = v_job.unique_key)),
      hint = 'That job does the work now; retry this one when it has ended, or leave it.';
  end if;

  insert into pgwake.counts (queue, at, live_rows, waiting_rows, failed_rows, cancelled_rows, finished_slot)
  values (v_job.queue, v_job.run_at, 1, case v_job.status when 'waiting' then 1 end, case v_old_status when 'failed' then -1 end,
          case v_old_status when 'cancelled' then -1 end, v_old_slot);
  if v_job.has_parents_left then
    insert into pgwake.rechecks (queue, at, child_id) values (v_job.queue, v_job.run_at, v_job.id);
  else
    perform pgwake.flag_keys(array[v_job.queue], array[v_job.concurrency_key]);
  end if;
  perform pgwake.wake(v_job.queue);
  if pgwake.is_announced(v_job.queue, pgwake.get_audience()) then
    perform pgwake.announce(array[
      pgwake.status_event(v_job.id, v_job.queue, v_job.kind, v_old_status, v_job.status)]);
  end if;
end
$$;

comment on function pgwake.retry_job is
  'Makes a failed or cancelled job pending again, due now.';
revoke all on function pgwake.retry_job from public;

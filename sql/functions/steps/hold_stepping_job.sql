-- Locks a running job that records a step, sleeps or waits, in whose transaction the lock
-- stays. Internal: for record_step, sleep_job and await_answer.
--
-- queue: its own. is_cancelled: that was asked for. kind, result, until: the step of this
-- name, null if there is none. Raises PW001, PW002, and PW003 for a null, a name that
-- can't be one, or where the step is of another kind than expected. Rides jobs_live_pkey
-- and steps_pkey.
create or replace function pgwake.hold_stepping_job(
  job_id bigint, lease_id uuid, name text, expected text,
  out queue text, out is_cancelled boolean, out kind text, out result jsonb, out until timestamptz
)
returns record
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
begin
  perform pgwake.check_batch_arguments(array[hold_stepping_job.job_id], array[hold_stepping_job.lease_id]);
  perform pgwake.check_step_name(hold_stepping_job.name);
  -- One that has recorded before needs the lock alone.
  perform from pgwake.jobs_live as j
  where j.id = hold_stepping_job.job_id and j.lease_id = hold_stepping_job.lease_id and j.has_steps
  for no key update;
  if not found
    and pgwake.lock_stepping_jobs(array[hold_stepping_job.job_id], array[hold_stepping_job.lease_id]) is null
  then
    perform pgwake.raise_outcome(hold_stepping_job.job_id, case
      when pgwake.lease_outcome(hold_stepping_job.job_id, hold_stepping_job.lease_id) = 'no_such_job' then 'no_such_job'
      else 'lease_lost'
    end);
  end if;
  select j.queue, j.cancel_requested_at is not null as is_cancelled, s.kind, s.result, s.until
  into queue, is_cancelled, hold_stepping_job.kind, result, hold_stepping_job.until
  from pgwake.jobs_live as j
  left join pgwake.steps as s on s.job_id = j.id and s.name = hold_stepping_job.name
  where j.id = hold_stepping_job.job_id;
  if hold_stepping_job.kind <> hold_stepping_job.expected then
    perform pgwake.raise_invalid(
      format('job %s has recorded %L as a %s', hold_stepping_job.job_id, hold_stepping_job.name,
        hold_stepping_job.kind),
      'Use another name: one step has one name.');
  end if;
end
$$;

comment on function pgwake.hold_stepping_job is
  'Internal: locks a running job that records a step, sleeps or waits.';
revoke all on function pgwake.hold_stepping_job from public;

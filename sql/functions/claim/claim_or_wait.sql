-- Claims the next due job of a queue as claim_next_job does; if there is none, goes on
-- duty (see park) and says how long to sleep. The whole loop of a consumer that is woken:
-- LISTEN pgwake and pgwake_duty once, then call this, run the job or sleep, and again.
--
-- Returns one row. A job: the fields of claimed_job but the queue; the session is off duty
-- now. No job: id is null, and wait_seconds says how long to sleep at most. What ends the
-- sleep is a notification with the queue as its payload, on pgwake_duty, or if
-- is_on_duty on pgwake too. What was notified before the call is forgotten before it,
-- never after.
--
-- On duty the wait is 5 ms, and after that as long as it has been on duty: a job whose
-- transaction was under way meanwhile is found within as long again as that took. Not
-- beyond next_run_at, nor poll. Off duty it is poll: who calls before that was passed the
-- duty, and claims only if the duty lock is free, so that of many who wait one looks.
--
-- For a session of its own, for any number of queues, in autocommit and read committed:
-- rolled back, it may be on duty all the same, which a later call sets right. Who stops
-- calls unpark. What it was last is kept in a session setting, pgwake.duty_*. Raises as
-- claim_jobs does, and PW003 for what is no queue's name, or a poll that is not from 1 ms
-- to 1 day.
create or replace function pgwake.claim_or_wait(
  queue text default 'default', worker text default null, lease interval default null, poll interval default '5 seconds'
)
returns table (
  id bigint, lease_id uuid, kind text, payload jsonb, attempt int, max_attempts int, lease_expires_at timestamptz,
  created_at timestamptz, metadata jsonb, options jsonb, wait_seconds double precision, is_on_duty boolean
)
language plpgsql volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_notify_lock constant bigint := pgwake.notify_lock_key(claim_or_wait.queue);
  v_setting constant text := 'pgwake.duty_' || translate(v_notify_lock::text, '-', '_');
  v_poll constant numeric := extract(epoch from claim_or_wait.poll);
  v_clock constant numeric := extract(epoch from clock_timestamp());
  v_was constant numeric := substring(current_setting(v_setting, true) from '^-?\d{1,12}\.?\d{0,6}$');
  -- On duty since then; negative: off duty, and then it has looked. Null: neither.
  v_since numeric := v_was;
  v_job pgwake.claimed_job;
  v_due_in numeric;
begin
  if coalesce(octet_length(claim_or_wait.queue), 0) not between 1 and 128 then
    perform pgwake.raise_invalid('queue is no name of a queue', 'Name the queue to claim from, in 1 to 128 bytes.');
  end if;
  if (claim_or_wait.poll between interval '1 millisecond' and interval '1 day') is not true then
    perform pgwake.raise_invalid(
      format('poll is %s', coalesce(claim_or_wait.poll::text, 'null')), 'Poll each 1 millisecond to 1 day.');
  end if;

  is_on_duty := coalesce(v_since > 0, false);
  if v_since <= 0 and v_clock + v_since between 0 and v_poll then
    is_on_duty := pgwake.park(claim_or_wait.queue);
    if not is_on_duty then
      wait_seconds := v_poll - (v_clock + v_since);
      return next;
      return;
    end if;
    v_since := v_clock;
  end if;

  v_job := c from pgwake.claim_next_job(claim_or_wait.queue, claim_or_wait.worker, claim_or_wait.lease) as c;
  if v_job.id is null then
    -- The lock is the truth: the setting goes with a rollback, and unpark leaves it.
    is_on_duty := exists (
      select from pg_locks as l
      where l.pid = pg_backend_pid() and l.locktype = 'advisory' and l.objsubid = 1
        and l.classid::bigint << 32 | l.objid::bigint = v_notify_lock);
    if not is_on_duty then
      is_on_duty := pgwake.park(claim_or_wait.queue);
      v_since := case when is_on_duty then v_clock else -v_clock end;
      if is_on_duty then  -- one more look: a job may have come just before
        v_job := c from pgwake.claim_next_job(claim_or_wait.queue, claim_or_wait.worker, claim_or_wait.lease) as c;
      end if;
    elsif (v_since between 0 and v_clock) is not true then
      v_since := v_clock;
    end if;
  end if;

  if v_job.id is not null then
    v_since := null;
  end if;
  if v_since is distinct from v_was then
    perform set_config(v_setting, v_since::text, false);
  end if;

  if v_job.id is not null then
    if is_on_duty then
      perform pgwake.unpark(claim_or_wait.queue);
    end if;
    return query select v_job.id, v_job.lease_id, v_job.kind, v_job.payload, v_job.attempt, v_job.max_attempts,
      v_job.lease_expires_at, v_job.created_at, v_job.metadata, v_job.options, null::double precision, false;
    return;
  end if;

  wait_seconds := v_poll;
  if is_on_duty then
    v_due_in := extract(epoch from pgwake.next_run_at(claim_or_wait.queue) - pgwake.now());
    wait_seconds := least(v_poll, greatest(0.005, v_clock - v_since), case when v_due_in > 0 then v_due_in end);
  end if;
  return next;
end
$$;

comment on function pgwake.claim_or_wait is
  'Claims the next due job of a queue; if there is none, goes on duty and says how long to sleep.';
revoke all on function pgwake.claim_or_wait from public;

-- Has a running job ask for an answer, and wait if it is not there: for await_event (event)
-- and await_job (other_id), which say what is answered. Internal.
--
-- No job waits for ever for what has come:
--   An event: we try to take its advisory lock alone, look for it, and write our row of
--   pgwake.waits; the lock goes at our commit. Who emits it takes the lock shared at his
--   commit, and looks for waits by a later statement: see after_insert_events. So he comes
--   either before, and then our try has failed, or after, and sees our row: read committed.
--   One under repeatable read marks his event, and maintain('children') looks again.
--   Another job: we lock it and set has_children, which gives it a new version. Who ends it
--   waits for our commit, and sees our row: see flag_children; or his transaction fails,
--   under repeatable read.
--   Where the lock is somebody else's, the answer may be on its way: the job asks again in
--   50 milliseconds. So the one who waits waits for nobody.
--
-- What wakes is a recheck whose parent is the job itself, which admit_children obeys
-- whatever the job's parents are; one at the deadline too. It is only a hint: the job asks
-- again under its lease. Rides events_pkey, waits_pkey and jobs_live_pkey.
create or replace function pgwake.await_answer(
  job_id bigint, lease_id uuid, name text, event text, other_id bigint, timeout interval, may_wait boolean,
  out outcome text, out result jsonb
)
returns record
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  v_held record;
  v_wait record;
  v_deadline timestamptz;
  v_is_certain boolean;
  v_is_heard boolean;
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    perform pgwake.raise_invalid(
      format('transaction isolation is %s', current_setting('transaction_isolation')),
      'Wait in read committed: under an older snapshot the answer could be missed for ever.');
  end if;
  if (await_answer.timeout between interval '0' and interval '10 years') is false or await_answer.may_wait is null then
    perform pgwake.raise_invalid(
      format('timeout is %s, may_wait %s', coalesce(await_answer.timeout::text, 'null'),
        coalesce(await_answer.may_wait::text, 'null')),
      'Use an interval from 0 to 10 years, or null for none; true to go and wait, or false to ask alone.');
  end if;
  v_held := pgwake.hold_stepping_job(await_answer.job_id, await_answer.lease_id, await_answer.name, 'event');
  if v_held.kind is not null then
    outcome := case when v_held.until is null then 'here' else 'timed_out' end;
    result := v_held.result;
    return;
  end if;
  if v_held.is_cancelled and await_answer.may_wait then
    perform pgwake.end_job(await_answer.job_id, 'cancelled');
    outcome := 'cancelled';
    return;
  end if;

  -- From here to our commit whoever brings the answer waits for us, or has come first.
  if await_answer.event is not null then
    v_is_certain := pg_try_advisory_xact_lock(1885828965, pgwake.event_lock_key(await_answer.event));
    select e.payload, e.is_heard into result, v_is_heard from pgwake.events as e where e.name = await_answer.event;
    if found then
      outcome := 'here';
      if v_is_heard is null then
        update pgwake.events as e
        set is_heard = true
        where e.ctid = (
          select o.ctid from pgwake.events as o where o.name = await_answer.event for no key update skip locked);
      end if;
    end if;
  else
    perform from pgwake.jobs_live as j where j.id = await_answer.other_id for no key update skip locked;
    v_is_certain := found;
    if v_is_certain then
      update pgwake.jobs_live as j set has_children = true where j.id = await_answer.other_id;
    else
      select jsonb_build_object('status', j.status, 'result', j.result) into result
      from (values (await_answer.other_id)) as v(id)
      left join pgwake.jobs as j on j.id = await_answer.other_id
      where (j.status in ('waiting', 'pending', 'running')) is not true;
      outcome := case when found then 'here' end;
    end if;
  end if;

  select w.name, w.since, w.deadline into v_wait from pgwake.waits as w where w.job_id = await_answer.job_id;
  v_deadline := case
    when v_wait.name = await_answer.name then v_wait.deadline
    else pgwake.now() + await_answer.timeout
  end;
  if outcome is null and v_is_certain and v_deadline <= pgwake.now() then
    outcome := 'timed_out';
  end if;
  if v_wait.name is not null and (outcome is not null or await_answer.may_wait) then
    perform pgwake.forget_wait(await_answer.job_id);
  end if;
  if outcome is not null then
    perform pgwake.put_steps(
      array[await_answer.job_id], array[await_answer.name], 'event', array[result],
      case outcome when 'timed_out' then v_deadline end);
    return;
  end if;

  outcome := 'waits';
  if not await_answer.may_wait then
    return;
  end if;
  insert into pgwake.waits (job_id, name, event, other_id, since, deadline)
  values (
    await_answer.job_id, await_answer.name, await_answer.event, await_answer.other_id,
    case when v_wait.name = await_answer.name then v_wait.since else pgwake.now() end, v_deadline);
  if v_deadline is not null or not v_is_certain then
    insert into pgwake.rechecks (queue, at, child_id, parent_id, has_failed)
    values (
      v_held.queue, case when v_is_certain then v_deadline else pgwake.called_at() + interval '50 milliseconds' end,
      await_answer.job_id, await_answer.job_id, false);
  end if;
  perform pgwake.suspend_job(await_answer.job_id, null);
end
$$;

comment on function pgwake.await_answer is
  'Internal: has a running job ask for an answer, and wait.';
revoke all on function pgwake.await_answer from public;

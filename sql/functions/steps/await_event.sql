-- Has a running job wait for an event (see emit_event), for at most timeout (0 to 10 years,
-- null: for ever). It is waiting meanwhile, has no lease, takes no slot and no room of its
-- concurrency key, and its attempts, crashes and bounces begin anew.
--
--   name      of the step, null: the event. One that waits for an event again after a
--             time-out needs another
--   may_wait  false: asks alone, and changes nothing where the event is not there
--
-- One row, outcome and result:
--   here       result is the event's payload
--   timed_out  it did not come in time. The first call of a name sets the time
--   waits      the lease is gone, claim the next: the job comes again when the event has
--              come or the time is over, or for nothing, and then is to ask again
--   cancelled  its cancellation had been asked for, and it has ended
-- here and timed_out are recorded as a step: every later run is answered the same.
--
-- Raises PW001 no such job, PW002 lease lost, PW003 null argument, a name that is not of 1
-- to 512 bytes or of another kind of step, a time-out beyond 10 years, or a transaction
-- that is not read committed. Commit at once after it: until then emitters of 1/256 of all
-- names wait. Waits itself for nobody but who has the job locked.
create or replace function pgwake.await_event(
  job_id bigint,
  lease_id uuid,
  event text,
  timeout interval default null,
  name text default null,
  may_wait boolean default true,
  out outcome text,
  out result jsonb
)
returns record
language plpgsql volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  perform pgwake.check_step_name(await_event.event);
  select a.* into outcome, result
  from pgwake.await_answer(
    await_event.job_id, await_event.lease_id, coalesce(await_event.name, await_event.event), await_event.event, null,
    await_event.timeout, await_event.may_wait) as a;
end
$$;

comment on function pgwake.await_event is
  'Has a running job wait for an event; outcome is here, timed_out, waits or cancelled.';
revoke all on function pgwake.await_event from public;

-- Takes the queue's notify lock for this session, which is on duty: from now on inserts
-- notify. Look at the queue after it, and before sleeping.
--
-- Only who is on duty may have the notify lock, so that nothing is in the way but
-- inserters' momentary probes. Raises PW003; 55P03 if something else is for long, such
-- as a hand-made lock.
create or replace function pgwake.unmute(queue text default 'default')
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  v_key bigint := pgwake.notify_lock_key(unmute.queue);
begin
  if unmute.queue is null then
    perform pgwake.raise_invalid('queue is null', 'Name the queue that this session is on duty for.');
  end if;
  for try in 1..100000 loop
    if pg_try_advisory_lock(v_key) then
      return;
    end if;
  end loop;
  raise lock_not_available using
    message = format('the notify lock of queue %s can''t be taken', to_json(unmute.queue)),
    hint = 'Look in pg_locks for who has it without being on duty, and end that session.';
end
$$;

comment on function pgwake.unmute is
  'Takes the queue''s notify lock: from now on its inserts notify.';
revoke all on function pgwake.unmute from public;

-- Goes off duty, and passes the duty: others that sleep are told on channel
-- pgwake_duty to call park(). muted says that this session has the duty lock alone.
--
-- Returns whether this session was on duty (if not, the server warns). Raises PW003.
create or replace function pgwake.unpark(queue text default 'default', muted boolean default false)
returns boolean
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  v_was_on_duty boolean;
begin
  if coalesce(octet_length(unpark.queue), 0) not between 1 and 128 then
    perform pgwake.raise_invalid('queue is no name of a queue', 'Name the queue to go off duty for, in 1 to 128 bytes.');
  end if;
  if not unpark.muted then
    perform pgwake.mute(unpark.queue);
  end if;
  -- Told after the unlock: before, they would try in vain, and sleep.
  v_was_on_duty := pg_advisory_unlock(pgwake.notify_lock_key(unpark.queue) + 1);
  perform pgwake.pass_duty(unpark.queue);
  return v_was_on_duty;
end
$$;

comment on function pgwake.unpark is
  'Goes off duty for a queue, and tells the others that sleep on it.';
revoke all on function pgwake.unpark from public;

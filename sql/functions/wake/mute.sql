-- Gives the queue's notify lock up, and stays on duty: inserts are silent from now on.
-- For who looks at a busy queue so often that nobody need be woken.
--
-- Returns whether this session had the notify lock (if not, the server warns). Raises
-- PW003.
create or replace function pgwake.mute(queue text default 'default')
returns boolean
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  if mute.queue is null then
    perform pgwake.raise_invalid('queue is null', 'Name the queue that this session is on duty for.');
  end if;
  return pg_advisory_unlock(pgwake.notify_lock_key(mute.queue));
end
$$;

comment on function pgwake.mute is
  'Gives the queue''s notify lock up, and stays on duty: its inserts are silent.';
revoke all on function pgwake.mute from public;

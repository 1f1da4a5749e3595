-- Asks for status events, for as long as this session lives or until it calls
-- unwatch(): a session that has called LISTEN job_status_changed hears of every
-- transition by a statement that began after watch() had returned, in the queues whose
-- status_events are watched (the default) or always.
--
-- Watching twice is watching once. Holds advisory lock (1885828973, 0) shared, by the
-- session: a roll-back leaves it held, but the session may then miss its own
-- transitions, so call it outside of a transaction. Not through a transaction pooler.
--
-- Senders try the same lock exclusively for a microsecond, so a failure is tried again
-- and never waited for: a wait in the queue of the lock would look like a watcher.
-- Raises 55P03 if it could not be had for a second.
create or replace function pgwake.watch()
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  perform set_config('pgwake.is_watching', 'on', false);
  if exists (
    select from pg_locks as l
    where l.locktype = 'advisory' and l.pid = pg_backend_pid()
      and l.classid = 1885828973 and l.objid = 0 and l.objsubid = 2
      and l.mode = 'ShareLock'
  ) then
    return;
  end if;
  for try in 1..1000 loop
    if pg_try_advisory_lock_shared(1885828973, 0) then
      return;
    end if;
    perform pg_sleep(0.001);
  end loop;
  raise exception using
    errcode = '55P03',
    message = 'the watch lock can not be had',
    hint = 'A session holds advisory lock (1885828973, 0) exclusively, see pg_locks. A sender'
      ' does for a microsecond; end the session if it is stopped.';
end
$$;

comment on function pgwake.watch is
  'Asks for status events on channel job_status_changed, until unwatch or the session''s end.';
revoke all on function pgwake.watch from public;

-- Takes the queue's bell for this session: a session-level advisory lock, exclusive.
-- While somebody has it, whatever makes a job of the queue pending notifies; while
-- nobody has, nobody sleeps, and nothing is sent.
--
-- Returns whether this session has it now; false: somebody else has. Taken twice it has
-- to be given up twice. Not undone by a rollback. sql/README.md says what a consumer
-- has to do before and after, so that no job is left over; in short: LISTEN first, look
-- at the queue once more before sleeping, and again when open_writers() have gone.
--
-- Raises PW003. Never waits, since that would pin a snapshot. A try can fail on an
-- inserter's momentary probe, so it is believed only if pg_locks shows a holder.
create or replace function pgwake.park(queue text default 'default')
returns boolean
language plpgsql volatile
set search_path = ''
as $$
declare
  v_key bigint := pgwake.bell_key(park.queue);
begin
  if park.queue is null then
    perform pgwake.raise_invalid('queue is null', 'Name the queue whose bell to take.');
  end if;
  loop
    if pg_try_advisory_lock(v_key) then
      return true;
    end if;
    perform
    from pg_locks as l
    where l.locktype = 'advisory' and l.mode = 'ExclusiveLock' and l.granted
      and l.classid = (v_key >> 32 & 4294967295)::oid and l.objid = (v_key & 4294967295)::oid
      and l.objsubid = 1
      and l.database = (select d.oid from pg_database as d where d.datname = current_database());
    if found then
      return false;
    end if;
  end loop;
end
$$;

comment on function pgwake.park is
  'Takes the queue''s bell for this session, so that it is notified; false: somebody '
  'else has it.';
revoke all on function pgwake.park from public;

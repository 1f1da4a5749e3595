-- Puts this session on duty for a queue, as the one that its inserts wake: takes the
-- duty lock, and unless muted the notify lock, two session-level advisory locks. While
-- somebody has the notify lock, whatever makes a job of the queue pending notifies;
-- while nobody has, whoever is on duty looks often, or nobody sleeps, and nothing is
-- sent.
--
-- Returns whether this session is on duty now; false: another is. Taken twice, it has
-- to be given up twice. Not undone by a rollback. sql/CONSUMERS.md says what a consumer
-- has to do before and after, so that no job is left over; in short: LISTEN first, look
-- at the queue once more before sleeping, and again when open_writers() have gone.
--
-- Raises PW003. Never waits, since that would pin a snapshot.
create or replace function pgwake.park(queue text default 'default', muted boolean default false)
returns boolean
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  if park.queue is null then
    perform pgwake.raise_invalid('queue is null', 'Name the queue to be on duty for.');
  end if;
  if not pg_try_advisory_lock(pgwake.notify_lock_key(park.queue) + 1) then
    return false;
  end if;
  if not park.muted then
    perform pgwake.unmute(park.queue);
  end if;
  return true;
end
$$;

comment on function pgwake.park is
  'Puts this session on duty for a queue, so that its inserts notify; false: another '
  'is.';
revoke all on function pgwake.park from public;

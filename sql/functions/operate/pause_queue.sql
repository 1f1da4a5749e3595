-- Pauses a queue: nothing more of it is claimed, until it is resumed or, if until is
-- given, until then, by itself. Adding jobs goes on, and what runs runs to its end.
--
-- Returns until when it is paused now: infinity, or the time that was given. Another
-- pause replaces the first. A claim that began before the pause was committed still
-- gets its jobs.
--
-- Raises PW003 for a name that no queue can have, and for an until that is null, past,
-- or beyond the year 9999. Rides queues_pkey.
create or replace function pgwake.pause_queue(
  queue text default 'default', until timestamptz default 'infinity'
)
returns timestamptz
language plpgsql volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  if octet_length(pause_queue.queue) between 1 and 128 is not true then
    perform pgwake.raise_invalid(
      format('queue has %s bytes', coalesce(octet_length(pause_queue.queue)::text, 'no')),
      'Name a queue, 1 to 128 bytes.');
  end if;
  if (pause_queue.until > pgwake.now()) is not true then
    perform pgwake.raise_invalid(
      format('until is %s', coalesce(pause_queue.until::text, 'null')),
      'Use a time to come, leave it out to pause until resume_queue(), or call that.');
  end if;
  if pause_queue.until >= '9999-12-31 00:00+00' and pause_queue.until <> 'infinity' then
    perform pgwake.raise_invalid(
      format('until is %s', pause_queue.until), 'Use a time before the year 10000, or leave it out.');
  end if;
  insert into pgwake.queues as q (name, paused_until)
  values (pause_queue.queue, pause_queue.until)
  on conflict (name) do update set paused_until = excluded.paused_until;
  return pause_queue.until;
end
$$;

comment on function pgwake.pause_queue is
  'Pauses a queue, until it is resumed or until a time; returns until when.';
revoke all on function pgwake.pause_queue from public;

-- Says that something has happened: an event of that name (1 to 512 bytes, the same for
-- all queues, such as order:42:approved), with any JSON payload of at most 1 MiB. Jobs that
-- wait for it go on after the commit, and those that ask later find it, for as long as it
-- is kept (0 to 100 years) and at least until who waits has it.
--
-- An event is a fact, not a message: nobody takes it away, and the first of a name counts.
-- Returns whether this is the first; if not, nothing changes. What comes twice needs a
-- number in its name. An INSERT into pgwake.events (name, payload, expires_at) does the
-- same, but raises 23505 for a name that is there.
--
-- Raises PW003. Emitters of one name wait for each other; who emits several in one
-- transaction does so in order of name, or may get 40P01.
create or replace function pgwake.emit_event(name text, payload jsonb default null, keep interval default '30 days')
returns boolean
language plpgsql volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  perform pgwake.check_step_name(emit_event.name);
  if (emit_event.keep between interval '0' and interval '100 years') is not true then
    perform pgwake.raise_invalid(
      format('keep is %s', coalesce(emit_event.keep::text, 'null')), 'Use an interval from 0 to 100 years.');
  end if;
  if octet_length(emit_event.payload::text) > 1048576 then
    perform pgwake.raise_invalid(
      format('the payload has %s bytes', octet_length(emit_event.payload::text)),
      'Use at most 1048576: have more in a table of yours, and its key in the payload.');
  end if;
  insert into pgwake.events (name, payload, expires_at)
  values (emit_event.name, coalesce(emit_event.payload, 'null'), pgwake.now() + emit_event.keep)
  on conflict on constraint events_pkey do nothing;
  return found;
end
$$;

comment on function pgwake.emit_event is
  'Emits an event, for jobs that wait for it; returns whether it is the first of its name.';
revoke all on function pgwake.emit_event from public;

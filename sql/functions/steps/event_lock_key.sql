-- The second key of an event's advisory lock, 0 to 255: see await_answer. Few, so that an
-- INSERT of any number of events does not fill the server's lock table. Plain SQL without a
-- set clause, so that the planner puts it inline.
create or replace function pgwake.event_lock_key(event text)
returns int
language sql immutable
as $$
  select pg_catalog.hashtext(event) operator(pg_catalog.&) 255
$$;

comment on function pgwake.event_lock_key is
  'Internal: the second key of an event''s advisory lock.';
revoke all on function pgwake.event_lock_key from public;

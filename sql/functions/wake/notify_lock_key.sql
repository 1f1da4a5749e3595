-- The key of a queue's notify lock: of 64 bits, so that two names hardly ever share
-- one. The next one is the duty lock's: see park(). Plain SQL without a set clause, so
-- that the planner puts it inline.
create or replace function pgwake.notify_lock_key(queue text)
returns bigint
language sql immutable parallel safe
as $$
  select pg_catalog.hashtextextended(queue, 1885828972) operator(pg_catalog.&) -2::bigint
$$;

comment on function pgwake.notify_lock_key is 'Internal: the advisory lock key of a queue''s notify lock.';
revoke all on function pgwake.notify_lock_key from public;

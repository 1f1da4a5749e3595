-- The key of a queue's bell: of 64 bits, so that two names hardly ever share one. The
-- next one is the post's: see park(). Plain SQL without a set clause, so that the
-- planner puts it inline.
create or replace function pgwake.bell_key(queue text)
returns bigint
language sql immutable parallel safe
as $$
  select pg_catalog.hashtextextended(queue, 1885828972) operator(pg_catalog.&) -2::bigint
$$;

comment on function pgwake.bell_key is 'The advisory lock key of a queue''s bell.';
revoke all on function pgwake.bell_key from public;

-- Whether somebody watches status events now.
--
-- Who watches holds the watch lock shared (watch()), so it is watched if the lock can't
-- be had exclusively. Tried and given back in one expression: a time-out between two
-- statements would leave it held. A session's own lock does not stand in its way,
-- therefore watch() leaves a setting too. Of two probes at the same instant one may see
-- the other: then events are sent that nobody hears. 32 sessions that did nothing but
-- probe saw each other 4 times in 1,000; 32 that insert do once in 1,000.
--
-- Plain SQL without a set clause, so that the planner puts it inline.
create or replace function pgwake.is_watched()
returns boolean
language sql volatile
as $$
  select
    coalesce(pg_catalog.current_setting('pgwake.is_watching', true) operator(pg_catalog.=) 'on', false)
    or not (
      pg_catalog.pg_try_advisory_lock(1885828973, 0) and pg_catalog.pg_advisory_unlock(1885828973, 0))
$$;

comment on function pgwake.is_watched is 'Internal: whether somebody watches status events.';
revoke all on function pgwake.is_watched from public;

-- When a call was made, for the length of a lease: now(), or the clock where the
-- transaction began more than a second ago. Plain SQL without a set clause, so that the
-- planner puts it inline.
create or replace function pgwake.called_at()
returns timestamptz
language sql volatile
as $$
  select case
    when pg_catalog.clock_timestamp() operator(pg_catalog.-) pg_catalog.now() operator(pg_catalog.<) '1 second'
      then pgwake.now()
    else pgwake.now() operator(pg_catalog.+) (pg_catalog.clock_timestamp() operator(pg_catalog.-) pg_catalog.now())
  end
$$;

comment on function pgwake.called_at is
  'Internal: when a call was made, for the length of a lease.';
revoke all on function pgwake.called_at from public;

-- The queue's clock: the transaction's time, plus the session's offset.
--
-- set pgwake.clock_offset = '1 hour' moves it for the session; tests do, nobody else
-- should. It holds for the owner of the schema and who is a member of it, see
-- clock_offset(). Plain SQL without a set clause, so that the planner puts it inline.
create or replace function pgwake.now()
returns timestamptz
language sql stable parallel safe
as $$
  select pg_catalog.now() operator(pg_catalog.+) case
    when pg_catalog.current_setting('pgwake.clock_offset', true) operator(pg_catalog.<>) '' then pgwake.clock_offset()
    else '0'
  end
$$;

comment on function pgwake.now is
  'The queue''s clock: now() plus the setting pgwake.clock_offset.';
revoke all on function pgwake.now from public;

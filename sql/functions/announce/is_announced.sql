-- Whether transitions of a queue are announced to the audience that get_audience()
-- found. Plain SQL without a set clause, so that the planner puts it inline.
create or replace function pgwake.is_announced(queue text, audience pgwake.audience)
returns boolean
language sql immutable parallel safe
as $$
  select (queue operator(pg_catalog.=) any ((audience).exceptions)) operator(pg_catalog.<>) (audience).is_watched
$$;

comment on function pgwake.is_announced is
  'Internal: whether transitions of a queue are announced to an audience.';
revoke all on function pgwake.is_announced from public;

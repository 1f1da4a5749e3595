-- The leaf of the ring for a job that finishes at this instant, of leaves that are
-- filled for so many days each. Plain SQL without a set clause, so that the planner puts
-- it inline.
create or replace function pgwake.ring_slot(at timestamptz, width int)
returns smallint
language sql stable parallel safe
as $$
  select ((pg_catalog.floor(
    extract(epoch from ring_slot.at) operator(pg_catalog./) 86400 operator(pg_catalog./) ring_slot.width)::bigint)
    operator(pg_catalog.%) 32)::smallint
$$;

comment on function pgwake.ring_slot is
  'Internal: the leaf of the ring for an instant, by the width of the leaves.';
revoke all on function pgwake.ring_slot from public;

-- What this transaction has read of jobs_claim_idx so far: an entry counts 1, a block 10.
-- The difference of two tells what a look has waded through, the same on any machine.
--
-- Dead entries that an old snapshot pins are entries; those that are known to be dead
-- cost only their block, until vacuum has been there. Always 0 with track_counts off.
-- Plain SQL without a set clause, so that the planner puts it inline.
create or replace function pgwake.claim_cost()
returns bigint
language sql volatile
as $$
  select pg_catalog.pg_stat_get_xact_tuples_returned('pgwake.jobs_claim_idx'::regclass)
    + 10 * pg_catalog.pg_stat_get_xact_blocks_fetched('pgwake.jobs_claim_idx'::regclass)
$$;

comment on function pgwake.claim_cost is
  'Internal: what this transaction has read of jobs_claim_idx so far.';
revoke all on function pgwake.claim_cost from public;

-- What this transaction has read of looks_due_idx so far, as claim_cost() of
-- jobs_claim_idx. Plain SQL without a set clause, so that the planner puts it inline.
create or replace function pgwake.look_cost()
returns bigint
language sql volatile
as $$
  select pg_catalog.pg_stat_get_xact_tuples_returned('pgwake.looks_due_idx'::regclass)
    + 10 * pg_catalog.pg_stat_get_xact_blocks_fetched('pgwake.looks_due_idx'::regclass)
$$;

comment on function pgwake.look_cost is
  'Internal: what this transaction has read of looks_due_idx so far.';
revoke all on function pgwake.look_cost from public;

-- What this transaction has read of rechecks_due_idx so far, as claim_cost() of
-- jobs_claim_idx. Plain SQL without a set clause, so that the planner puts it inline.
create or replace function pgwake.rows_read()
returns bigint
language sql volatile
as $$
  select pg_catalog.pg_stat_get_xact_tuples_returned('pgwake.rechecks_due_idx'::regclass)
    + 10 * pg_catalog.pg_stat_get_xact_blocks_fetched('pgwake.rechecks_due_idx'::regclass)
$$;

comment on function pgwake.rows_read is
  'Internal: what this transaction has read of rechecks_due_idx so far.';
revoke all on function pgwake.rows_read from public;

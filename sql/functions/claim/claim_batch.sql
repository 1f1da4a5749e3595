-- Claims as claim_rows does, for the workers of the version before: one row, with the jobs
-- as an array, and its other arguments and answers under the same names.
create or replace function pgwake.claim_batch(
  queue text,
  count int,
  worker text default null,
  lease interval default null,
  inout cursor jsonb default null,
  suspects boolean default false,
  out jobs pgwake.claimed_job[],
  out next_run_at timestamptz,
  out claimed_at timestamptz,
  out is_limited boolean
)
returns record
language plpgsql volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  select
    coalesce(array_agg(row(
      c.id, c.lease_id, claim_batch.queue, c.kind, c.payload, c.attempt, c.max_attempts, c.lease_expires_at,
      c.created_at, c.metadata, c.options)::pgwake.claimed_job) filter (where c.id is not null), '{}'),
    max(c.next_run_at), max(c.claimed_at), bool_or(c.is_limited),
    (array_agg(c.next_cursor) filter (where c.id is null))[1]
  into jobs, next_run_at, claimed_at, is_limited, claim_batch.cursor
  from pgwake.claim_rows(
    claim_batch.queue, claim_batch.count, claim_batch.worker, claim_batch.lease, claim_batch.cursor,
    claim_batch.suspects) as c;
end
$$;

comment on function pgwake.claim_batch is
  'Claims up to count due jobs of a queue; one row: jobs, next_run_at, cursor, '
  'claimed_at, is_limited.';
revoke all on function pgwake.claim_batch from public;

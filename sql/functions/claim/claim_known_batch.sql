-- Claims as claim_batch does, but no jobs of unknown_kinds: those that the worker has met
-- and can not run, at most 1,000. So they do not go to and fro, and keep nobody waiting.
-- next_run_at is theirs only if it is still to come.
--
-- left_out_id: if less than count was claimed, the job of these kinds that has become due
-- last, within ten seconds; null if there is none. While it changes, others who know the
-- kind may have to be woken: leave the duty to them for a moment.
--
-- A queue full of them is read once, and then from the cursor's resume points, like dead
-- rows: see claim_batch. Raises PW003 and PW006 as it does. Rides jobs_claim_idx.
create or replace function pgwake.claim_known_batch(
  queue text,
  count int,
  worker text default null,
  lease interval default null,
  inout cursor jsonb default null,
  unknown_kinds text[] default '{}',
  out jobs pgwake.claimed_job[],
  out next_run_at timestamptz,
  out claimed_at timestamptz,
  out is_limited boolean,
  out left_out_id bigint
)
returns record
language plpgsql volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  if (cardinality(claim_known_batch.unknown_kinds) <= 1000
      and array_position(claim_known_batch.unknown_kinds, null) is null) is not true
  then
    perform pgwake.raise_invalid(
      'unknown_kinds is null, has a null in it, or more than 1000 kinds', 'Pass up to 1000 kinds to leave out.');
  end if;
  select b.jobs, b.next_run_at, b.claimed_at, b.is_limited, b.cursor
  into jobs, next_run_at, claimed_at, is_limited, claim_known_batch.cursor
  from pgwake.claim_batch(
    claim_known_batch.queue, claim_known_batch.count, claim_known_batch.worker, claim_known_batch.lease,
    coalesce(claim_known_batch.cursor, '{}')
      || jsonb_build_object('unknown_kinds', claim_known_batch.unknown_kinds)) as b;
  if cardinality(jobs) < claim_known_batch.count then
    left_out_id := pgwake.newest_left_out(claim_known_batch.queue, claim_known_batch.unknown_kinds, claimed_at);
  end if;
end
$$;

comment on function pgwake.claim_known_batch is
  'Claims as claim_batch, but none of unknown_kinds; one more column: left_out_id.';
revoke all on function pgwake.claim_known_batch from public;

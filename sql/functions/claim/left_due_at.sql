-- When the first job that a claim has left is due, of the priority bands that it has
-- looked at, each from where it has: see lock_due_jobs; from_ats and from_ids null: from
-- the head. Of unknown_kinds only one that is
-- due later than at: then others may have to be woken. Internal, for claim_rows.
-- Volatile: what the claim has taken is gone from the index, as this statement sees it.
-- Rides jobs_claim_idx.
create or replace function pgwake.left_due_at(
  queue text, bands int[], from_ats timestamptz[], from_ids bigint[], unknown_kinds text[], at timestamptz
)
returns timestamptz
language plpgsql volatile
as $$
begin
  return (
    select min(left_at.run_at)
    from unnest(left_due_at.bands, left_due_at.from_ats, left_due_at.from_ids) as v(band, from_at, from_id)
    cross join lateral (
      select j.run_at
      from pgwake.jobs_live as j
      where j.queue = left_due_at.queue and j.status = 'pending'
        and least(j.crash_count, 2) * 201 - j.priority = v.band
        and (j.run_at, j.id) > (coalesce(v.from_at, '-infinity'), coalesce(v.from_id, 0))
        and (left_due_at.unknown_kinds is null or j.kind <> all (left_due_at.unknown_kinds) or j.run_at > left_due_at.at)
      order by j.run_at, j.id
      limit 1
    ) as left_at
  );
end
$$;

comment on function pgwake.left_due_at is
  'Internal: when the first job that a claim has left is due.';
revoke all on function pgwake.left_due_at from public;

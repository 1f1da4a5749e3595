-- Claims the next due job of a queue: one row, or none. The simplest consumer's call;
-- see claim_jobs.
--
-- Since it takes one at a time it takes suspects too (jobs with two crashes or more),
-- when nothing else is due. For those it keeps no cursor: each dead entry among them has
-- cost somebody a process.
create or replace function pgwake.claim_next_job(
  queue text default 'default', worker text default null, lease interval default null
)
returns setof pgwake.claimed_job
language plpgsql volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  return query
  select c.*
  from pgwake.claim_jobs(claim_next_job.queue, 1, claim_next_job.worker, claim_next_job.lease) as c;
  if not found then
    return query
    select c.id, c.lease_id, claim_next_job.queue, c.kind, c.payload, c.attempt, c.max_attempts, c.lease_expires_at,
      c.created_at, c.metadata, c.options
    from pgwake.claim_rows(
      claim_next_job.queue, 1, claim_next_job.worker, claim_next_job.lease, suspects => true) as c
    where c.id is not null;
  end if;
end
$$;

comment on function pgwake.claim_next_job is
  'Claims the next due job of a queue: one row, or none.';
revoke all on function pgwake.claim_next_job from public;

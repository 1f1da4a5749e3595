-- Claims up to count due jobs, a row each, in claim order; no row if there is none or
-- the queue is paused.
--
-- For consumers in any language. Each job must be ended by complete_job, fail_job,
-- snooze_job or release_jobs with its id and lease_id before lease_expires_at, or the
-- lease kept up by extend_leases. Arguments as in claim_batch; jobs with two crashes or
-- more are left to claim_next_job. Raises PW003.
create or replace function pgwake.claim_jobs(
  queue text, count int, worker text default null, lease interval default null
)
returns setof pgwake.claimed_job
language plpgsql volatile
set search_path = ''
as $$
begin
  return query
  select c.*
  from pgwake.claim_batch(claim_jobs.queue, claim_jobs.count, claim_jobs.worker, claim_jobs.lease) as b
  cross join unnest(b.jobs) as c;
end
$$;

comment on function pgwake.claim_jobs is
  'Claims up to count due jobs of a queue, a row each.';
revoke all on function pgwake.claim_jobs from public;

-- What became of a job, seen from one of its leases; for the rows that a batch could
-- not change.
--
-- Returns completed, failed or cancelled if it ended under this lease; held if it is
-- running under it; lease_lost if the job exists otherwise; no_such_job. Rides the
-- primary keys of the leaves, live first: up to 34 probes.
create or replace function pgwake.lease_outcome(job_id bigint, lease_id uuid)
returns text
language sql stable
security definer
set search_path = pg_catalog, pg_temp
as $$
  select coalesce(
    (select case when j.lease_id = lease_outcome.lease_id then 'held' else 'lease_lost' end
     from pgwake.jobs_live as j where j.id = lease_outcome.job_id),
    (select case when j.lease_id = lease_outcome.lease_id then j.status else 'lease_lost' end
     from pgwake.jobs_failed as j where j.id = lease_outcome.job_id),
    (select case when j.lease_id = lease_outcome.lease_id then j.status else 'lease_lost' end
     from pgwake.jobs_finished as j where j.id = lease_outcome.job_id
     order by j.finished_at desc limit 1),
    'no_such_job'
  )
$$;

comment on function pgwake.lease_outcome is
  'Internal: what became of a job, seen from one of its leases.';
revoke all on function pgwake.lease_outcome from public;

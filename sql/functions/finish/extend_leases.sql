-- Keeps running jobs: moves the end of their leases to that long from now, by the clock
-- at the call (null: by policy, the kind's lease, else the queue's, else 5 minutes).
--
-- Returns an outcome each, in the order given: extended, cancel_requested (extended
-- too; stop the job and fail_job it), lease_lost or no_such_job. A row that somebody
-- has locked is being ended, or is written under its lease: it is left alone, and counts
-- as extended while its lease is this one; if it goes on after that, it is extended by the
-- sweep: see pgwake.missed_renewals. Never shortens a lease. Never raises for one job; PW003
-- for arrays that don't pair up. Locks in id order, skips locked rows; rides
-- jobs_live_pkey.
create or replace function pgwake.extend_leases(
  job_ids bigint[], lease_ids uuid[], lease interval default null
)
returns text[]
language plpgsql volatile
security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
declare
  v_now timestamptz := pgwake.called_at();
  v_locked bigint[] := pgwake.lock_held_jobs(extend_leases.job_ids, extend_leases.lease_ids);
begin
  if extend_leases.lease not between interval '1 second' and interval '1 day' then
    perform pgwake.raise_invalid(
      format('lease is %s', extend_leases.lease), 'Use an interval from 1 second to 1 day.');
  end if;
  with leases as materialized (
    select k.queue, k.kind, coalesce(
      extend_leases.lease, (select p.lease from pgwake.get_policy(k.queue, k.kind) as p)) as lease
    from (select distinct j.queue, j.kind from pgwake.jobs_live as j where j.id = any (extend_leases.job_ids)) as k
  ),
  noted as (
    insert into pgwake.missed_renewals as r (job_id, lease_id, expires_at)
    select j.id, j.lease_id, v_now + l.lease
    from unnest(extend_leases.job_ids, extend_leases.lease_ids) as u(id, lease_id)
    join pgwake.jobs_live as j on j.id = u.id and j.lease_id = u.lease_id
    join leases as l on l.queue = j.queue and l.kind = j.kind
    where cardinality(v_locked) < cardinality(extend_leases.job_ids) and u.id <> all (v_locked)
    order by j.id
    on conflict on constraint missed_renewals_pkey do update
    set lease_id = excluded.lease_id, expires_at = excluded.expires_at
  )
  update pgwake.jobs_live as j
  set lease_expires_at = greatest(j.lease_expires_at, v_now + l.lease)
  from leases as l
  where j.id = any (v_locked) and l.queue = j.queue and l.kind = j.kind;
  return pgwake.held_outcomes(extend_leases.job_ids, extend_leases.lease_ids, 'extended', null);
end
$$;

comment on function pgwake.extend_leases is
  'Keeps running jobs; returns extended, cancel_requested, lease_lost or no_such_job '
  'for each.';
revoke all on function pgwake.extend_leases from public;

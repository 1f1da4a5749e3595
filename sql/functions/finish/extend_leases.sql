-- Keeps running jobs: moves the end of their leases to that long from now (null: the
-- queue's lease, else 5 minutes).
--
-- Returns an outcome each, in the order given: extended, cancel_requested (extended
-- too; stop the job and fail_job it), lease_lost or no_such_job. A row that somebody
-- has locked is being ended: it is left alone, and counts as extended while its lease
-- is this one. Never shortens a lease. Never raises for one job; PW003 for arrays that
-- don't pair up. Locks in id order, skips locked rows; rides jobs_live_pkey.
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
#variable_conflict use_column
declare
  v_now timestamptz := pgwake.now();
begin
  perform pgwake.check_leases(extend_leases.job_ids, extend_leases.lease_ids);
  if extend_leases.lease not between interval '1 second' and interval '1 day' then
    perform pgwake.raise_invalid(
      format('lease is %s', extend_leases.lease), 'Use an interval from 1 second to 1 day.');
  end if;

  with mine as materialized (
    select u.id
    from unnest(extend_leases.job_ids, extend_leases.lease_ids) as u(id, lease_id)
    where u.lease_id = (select j.lease_id from pgwake.jobs_live as j where j.id = u.id)
  ),
  locked as materialized (
    select j.id
    from pgwake.jobs_live as j
    where j.id = any (array(select mine.id from mine)) and j.lease_id = any (extend_leases.lease_ids)
    order by j.id
    for no key update skip locked
  )
  update pgwake.jobs_live as j
  set lease_expires_at = greatest(
    j.lease_expires_at,
    v_now + coalesce(
      extend_leases.lease,
      (select q.lease from pgwake.queues as q where q.name = j.queue),
      interval '5 minutes'))
  where j.id = any (array(select locked.id from locked));

  return array(
    select
      case
        when j.lease_id = u.lease_id and j.cancel_requested_at is not null then 'cancel_requested'
        when j.lease_id = u.lease_id then 'extended'
        when j.id is null and pgwake.lease_outcome(u.id, u.lease_id) = 'no_such_job' then 'no_such_job'
        else 'lease_lost'
      end
    from unnest(extend_leases.job_ids, extend_leases.lease_ids) with ordinality as u(id, lease_id, place)
    left join lateral (
      select l.id, l.lease_id, l.cancel_requested_at
      from pgwake.jobs_live as l where l.id = u.id
      offset 0
    ) as j on true
    order by u.place
  );
end
$$;

comment on function pgwake.extend_leases is
  'Keeps running jobs; returns extended, cancel_requested, lease_lost or no_such_job '
  'for each.';
revoke all on function pgwake.extend_leases from public;

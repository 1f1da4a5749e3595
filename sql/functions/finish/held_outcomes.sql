-- What has become of running jobs that their holder keeps or says something of, in the
-- order given: done, or cancel_requested; skipped, of those that are not among done_ids
-- (null: all are); lease_lost; no_such_job. Internal: for extend_leases and
-- set_progresses. Rides jobs_live_pkey.
create or replace function pgwake.held_outcomes(job_ids bigint[], lease_ids uuid[], done text, done_ids bigint[])
returns text[]
language plpgsql stable
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set enable_nestloop = off
set jit = off
as $$
begin
  return array(
    select
      case
        when j.lease_id = u.lease_id and u.id <> all (held_outcomes.done_ids) then 'skipped'
        when j.lease_id = u.lease_id and j.cancel_requested_at is not null then 'cancel_requested'
        when j.lease_id = u.lease_id then held_outcomes.done
        when j.id is null and pgwake.lease_outcome(u.id, u.lease_id) = 'no_such_job' then 'no_such_job'
        else 'lease_lost'
      end
    from unnest(held_outcomes.job_ids, held_outcomes.lease_ids) with ordinality as u(id, lease_id, place)
    left join lateral (
      select l.id, l.lease_id, l.cancel_requested_at
      from pgwake.jobs_live as l where l.id = u.id
      offset 0
    ) as j on true
    order by u.place
  );
end
$$;

comment on function pgwake.held_outcomes is
  'Internal: what has become of running jobs that their holder keeps.';
revoke all on function pgwake.held_outcomes from public;

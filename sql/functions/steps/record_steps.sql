-- Records that steps of running jobs are done: parallel arrays of ids, lease ids, names
-- (1 to 512 bytes) and, if wanted, results (at most 1 MiB each: the domain
-- pgwake.job_result). A job may come several
-- times, with different names. What runs a job again finds them by get_steps, or in the
-- options of its claim.
--
-- Returns an outcome each, in the order given: recorded, cancel_requested (recorded too;
-- stop the job and fail_job it), lease_lost or no_such_job. A step that is recorded stays
-- as it is, so the same call repeated after a lost answer answers the same. Never
-- raises for one job; raises PW003 for arrays that don't pair up or a name that can't be
-- one, and the checks (23514) for a result that is too large, for more than 1,000 steps
-- of a job or 16 MiB of results, with nothing changed.
--
-- Locks the jobs, in id order, until the transaction ends: make it the last statement of
-- the transaction that has the steps' own writes. Rides jobs_live_pkey and steps_pkey.
create or replace function pgwake.record_steps(
  job_ids bigint[], lease_ids uuid[], names text[], results jsonb[] default null
)
returns text[]
language plpgsql volatile
security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
  v_ids bigint[];
begin
  if array_ndims(record_steps.job_ids) > 1
    or array_position(record_steps.job_ids, null) is not null or array_position(record_steps.lease_ids, null) is not null
    or array_position(record_steps.names, null) is not null
    or num_nulls(record_steps.job_ids, record_steps.lease_ids, record_steps.names) > 0
    or cardinality(record_steps.job_ids) <> any (array[
      cardinality(record_steps.lease_ids), cardinality(record_steps.names), cardinality(record_steps.results)])
  then
    perform pgwake.raise_invalid(
      'a job id, lease id or name is null, or the arrays differ in length',
      'Pass parallel arrays: the id and lease_id that the claim returned and a name for each step, and a result or null.');
  end if;
  perform pgwake.check_step_name(u.name) from unnest(record_steps.names) as u(name);
  v_ids := pgwake.lock_stepping_jobs(record_steps.job_ids, record_steps.lease_ids);
  perform pgwake.put_steps(
    array_agg(u.id), array_agg(u.name), 'step', array_agg(u.result), null)
  from unnest(record_steps.job_ids, record_steps.lease_ids, record_steps.names, record_steps.results)
    with ordinality as u(id, lease_id, name, result, n)
  join pgwake.jobs_live as j on j.id = u.id and j.lease_id = u.lease_id
  where u.id = any (v_ids)
  having count(*) > 0;
  return pgwake.held_outcomes(record_steps.job_ids, record_steps.lease_ids, 'recorded', null);
end
$$;

comment on function pgwake.record_steps is
  'Records that steps of running jobs are done; returns recorded, cancel_requested, lease_lost '
  'or no_such_job for each.';
revoke all on function pgwake.record_steps from public;

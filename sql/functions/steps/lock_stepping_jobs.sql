-- Locks running jobs whose lease is the one beside their id, and has them has_steps: what
-- an earlier job of the same id has left goes at the first record. Internal: for
-- record_steps and hold_stepping_job, in whose transaction the locks stay.
--
-- Returns the ids that were locked, null for none. Waits for whoever has one locked, in
-- id order. Rides jobs_live_pkey.
create or replace function pgwake.lock_stepping_jobs(job_ids bigint[], lease_ids uuid[])
returns bigint[]
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
declare
  v_ids bigint[];
  v_new bigint[];
begin
  select array_agg(l.id), array_agg(l.id) filter (where l.has_steps is null) into v_ids, v_new
  from (
    select j.id, j.has_steps
    from pgwake.jobs_live as j
    where j.id = any (lock_stepping_jobs.job_ids)
      and ((j.id, j.lease_id) in (
        select u.id, u.lease_id
        from unnest(lock_stepping_jobs.job_ids, lock_stepping_jobs.lease_ids) as u(id, lease_id)
      )) is true
    order by j.id
    for no key update
  ) as l;
  if v_new is not null then
    delete from pgwake.steps as s where s.job_id = any (v_new);
    delete from pgwake.waits as w where w.job_id = any (v_new);
    update pgwake.jobs_live as j set has_steps = true where j.id = any (v_new);
  end if;
  return v_ids;
end
$$;

comment on function pgwake.lock_stepping_jobs is
  'Internal: locks running jobs that record something.';
revoke all on function pgwake.lock_stepping_jobs from public;

-- Gives ended jobs a new id if a live one of these ids has the same: rows were restored
-- without their sequence, so that ids came again. The live job keeps its id, which its
-- worker and its children know. Internal, for lift_ids and for who ends a job. Returns
-- how many.
create or replace function pgwake.renumber_ended_jobs(job_ids bigint[])
returns int
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
  v_live constant bigint[] := array(
    select j.id from pgwake.jobs_live as j where j.id = any (renumber_ended_jobs.job_ids));
  v_failed_count int;
  v_finished_count int;
begin
  update pgwake.jobs_failed as j set id = nextval('pgwake.jobs_id_seq') where j.id = any (v_live);
  get diagnostics v_failed_count = row_count;
  update pgwake.jobs_finished as j set id = nextval('pgwake.jobs_id_seq') where j.id = any (v_live);
  get diagnostics v_finished_count = row_count;
  return v_failed_count + v_finished_count;
end
$$;

comment on function pgwake.renumber_ended_jobs is
  'Internal: gives ended jobs a new id that have the id of a live one.';
revoke all on function pgwake.renumber_ended_jobs from public;

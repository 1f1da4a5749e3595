-- Takes the steps of a live job that ends, and what it waits for, out of their tables;
-- returns the steps as pack_steps does, for the job's row. Internal: for jobs that
-- has_steps, in the statement that deletes them from jobs_live.
create or replace function pgwake.take_steps(job_id bigint)
returns jsonb
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
  v_steps jsonb := pgwake.pack_steps(take_steps.job_id);
begin
  delete from pgwake.steps as s where s.job_id = take_steps.job_id;
  perform pgwake.forget_wait(take_steps.job_id);
  return v_steps;
end
$$;

comment on function pgwake.take_steps is
  'Internal: takes the steps of a job that ends.';
revoke all on function pgwake.take_steps from public;

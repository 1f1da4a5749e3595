-- For claim_rows: what the options of a job say of its steps, {"steps": [...]} as
-- pack_steps, or {"steps": true} where their results have more than 64 KiB together: then
-- get_steps has them. So a claim of many jobs stays small. Internal.
create or replace function pgwake.claimed_steps(job_id bigint)
returns jsonb
language plpgsql stable
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
begin
  return jsonb_build_object('steps', case
    when (select max(s.total_bytes) from pgwake.steps as s where s.job_id = claimed_steps.job_id) > 65536 then 'true'
    else pgwake.pack_steps(claimed_steps.job_id)
  end);
end
$$;

comment on function pgwake.claimed_steps is
  'Internal: what the options of a claimed job say of its steps.';
revoke all on function pgwake.claimed_steps from public;

-- The opposite of take_steps, for a job that is live again. Internal: the caller sets its
-- has_steps.
create or replace function pgwake.put_back_steps(job_id bigint, steps jsonb)
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
begin
  delete from pgwake.steps as s where s.job_id = put_back_steps.job_id;
  insert into pgwake.steps (job_id, place, name, kind, result, until, total_bytes, attempt, at)
  select put_back_steps.job_id, r.place, r.name, r.kind, r.result, r.until,
    coalesce(sum(octet_length(r.result::text)) over (order by r.place), 0), r.attempt, r.at
  from jsonb_to_recordset(put_back_steps.steps)
    as r(place int, name text, kind text, result jsonb, until timestamptz, attempt int, at timestamptz);
end
$$;

comment on function pgwake.put_back_steps is
  'Internal: gives a job that is live again its steps back.';
revoke all on function pgwake.put_back_steps from public;

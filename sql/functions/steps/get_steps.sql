-- What a job has recorded, live or ended: a row a step, in the order they were recorded.
--
--   kind     step; sleep, with its end as until; event, the answer to a wait: its payload is
--            the result, or until says which time-out passed
--   attempt  the job's, when it was recorded
--
-- Raises PW001 no such job. Rides the primary keys of the leaves, and steps_pkey.
create or replace function pgwake.get_steps(job_id bigint)
returns table (
  place int, name text, kind text, result jsonb, until timestamptz, attempt int, at timestamptz
)
language plpgsql stable
security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  v_steps jsonb;
begin
  select case when j.has_steps then pgwake.pack_steps(j.id) else j.steps end into v_steps
  from pgwake.jobs as j
  where j.id = get_steps.job_id;
  if not found then
    perform pgwake.raise_outcome(get_steps.job_id, 'no_such_job');
  end if;
  return query
  select r.place, r.name, r.kind, r.result, r.until, r.attempt, r.at
  from jsonb_to_recordset(v_steps)
    as r(place int, name text, kind text, result jsonb, until timestamptz, attempt int, at timestamptz)
  order by r.place;
end
$$;

comment on function pgwake.get_steps is
  'What a job has recorded, live or ended: a row a step.';
revoke all on function pgwake.get_steps from public;

-- For explain_job: which of its parents a job waits for. Rides jobs_live_pkey.
create or replace function pgwake.explain_parents(job pgwake.jobs_live)
returns text
language plpgsql stable
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
  v_parents bigint[] := array(
    select j.id from pgwake.jobs_live as j where j.id = any (job.depends_on) order by j.id);
begin
  return case
    when v_parents = '{}' then
      'The jobs that it depends on have ended: the next claim of the queue sees to it, or '
      'select pgwake.maintain(''children'').'
    else format(
      'It waits for %s of the %s jobs that it depends on: %s%s.', cardinality(v_parents),
      (select count(distinct u.id) from unnest(job.depends_on) as u(id)), pgwake.say_jobs(v_parents[:5]),
      case when cardinality(v_parents) > 5 then format(' and %s more', cardinality(v_parents) - 5) else '' end)
  end;
end
$$;

comment on function pgwake.explain_parents is
  'Internal: for explain_job, which of its parents a job waits for.';
revoke all on function pgwake.explain_parents from public;

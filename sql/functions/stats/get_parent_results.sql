-- What became of the jobs that a job depends on: a row each, in the order of depends_on;
-- for the job itself to read while it runs, and for people. result: what the parent was
-- completed with. A parent that is gone, past its retention or purged, has null but for
-- its id.
--
-- Raises PW001 no such job. Rides the primary keys of the leaves.
create or replace function pgwake.get_parent_results(job_id bigint)
returns table (parent_id bigint, kind text, status text, result jsonb)
language plpgsql stable
security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
declare
  v_parents bigint[];
begin
  select j.depends_on into v_parents from pgwake.jobs_live as j where j.id = get_parent_results.job_id;
  if not found then
    select j.depends_on into v_parents from pgwake.jobs as j where j.id = get_parent_results.job_id;
  end if;
  if not found then
    perform pgwake.raise_outcome(get_parent_results.job_id, 'no_such_job');
  end if;
  return query
  select u.id, p.kind, p.status, p.result::jsonb
  from unnest(v_parents) with ordinality as u(id, place)
  left join pgwake.jobs as p on p.id = u.id and p.id = any (v_parents)
  order by u.place;
end
$$;

comment on function pgwake.get_parent_results is
  'What became of the jobs that a job depends on, with their results.';
revoke all on function pgwake.get_parent_results from public;

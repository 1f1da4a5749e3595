-- What the parents of a job came to, in the order of its depends_on: their status, and
-- their result if they have one.
--
-- One that has been purged is not returned. Rides the primary keys of the leaves.
create or replace function pgwake.get_parent_results(job_id bigint)
returns table (parent_id bigint, kind text, status text, result jsonb)
language plpgsql stable
set search_path = ''
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  v_parents bigint[] := (select j.depends_on from pgwake.jobs as j where j.id = get_parent_results.job_id);
begin
  return query
  select j.id, j.kind, j.status, j.result::jsonb
  from unnest(v_parents) with ordinality as p(id, place)
  join pgwake.jobs as j on j.id = p.id
  order by p.place;
end
$$;

comment on function pgwake.get_parent_results is 'What the parents of a job came to.';
revoke all on function pgwake.get_parent_results from public;

-- Writes steps of one kind that are not there yet; of two of a job and name the first
-- counts. Internal: the caller has locked the jobs. results, names: parallel to job_ids.
--
-- Raises the named checks (23514) of pgwake.steps. Rides steps_pkey and jobs_live_pkey.
create or replace function pgwake.put_steps(job_ids bigint[], names text[], kind text, results jsonb[], until timestamptz)
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
begin
  insert into pgwake.steps (job_id, place, name, kind, result, until, total_bytes, attempt, at)
  select g.job_id, h.place + row_number() over w, g.name, put_steps.kind, g.result, put_steps.until,
    h.total_bytes + coalesce(sum(octet_length(g.result::text)) over w, 0), h.attempt, pgwake.called_at()
  from (
    select distinct on (u.job_id, u.name) u.*
    from unnest(put_steps.job_ids, put_steps.names, put_steps.results) with ordinality as u(job_id, name, result, n)
    order by u.job_id, u.name, u.n
  ) as g
  cross join lateral (
    select coalesce(max(s.place), 0) as place, coalesce(max(s.total_bytes), 0) as total_bytes,
      coalesce(bool_or(s.name = g.name), false) as is_there,
      (select j.attempt from pgwake.jobs_live as j where j.id = g.job_id) as attempt
    from pgwake.steps as s
    where s.job_id = g.job_id
    offset 0
  ) as h
  where not h.is_there
  window w as (partition by g.job_id order by g.n);
end
$$;

comment on function pgwake.put_steps is
  'Internal: writes steps that are not there yet.';
revoke all on function pgwake.put_steps from public;

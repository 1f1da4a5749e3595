-- How many of these jobs, which crash_jobs has just taken, there are by queue and kind,
-- and how many of them are failed or cancelled by that. Internal, for whoever sweeps or
-- gives back. Rides the primary keys of jobs_live and, if some have left it, jobs_failed.
create or replace function pgwake.count_crashed(job_ids bigint[], queues text[], kinds text[])
returns table (queue text, kind text, job_count bigint, failed_count bigint, cancelled_count bigint)
language plpgsql stable
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  v_live bigint[];
  v_ended bigint[];
  v_failed bigint[] := '{}';
begin
  if coalesce(cardinality(count_crashed.job_ids), 0) = 0 then
    return;
  end if;
  v_live := array(select j.id from pgwake.jobs_live as j where j.id = any (count_crashed.job_ids));
  v_ended := array(select unnest(count_crashed.job_ids) except select unnest(v_live));
  if cardinality(v_ended) > 0 then
    v_failed := array(select j.id from pgwake.jobs_failed as j where j.id = any (v_ended));
  end if;
  return query
  select u.queue, u.kind, count(*), count(*) filter (where u.id = any (v_failed)),
    count(*) filter (where u.id = any (v_ended) and u.id <> all (v_failed))
  from unnest(count_crashed.job_ids, count_crashed.queues, count_crashed.kinds) as u(id, queue, kind)
  group by u.queue, u.kind;
end
$$;

comment on function pgwake.count_crashed is
  'Internal: what has become of jobs that were taken as crashes, by queue and kind.';
revoke all on function pgwake.count_crashed from public;

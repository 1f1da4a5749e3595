-- The steps of a live job as one value: an array of objects, by place, with the columns
-- that get_steps answers; null if there are none. Internal. Rides steps_pkey.
create or replace function pgwake.pack_steps(job_id bigint)
returns jsonb
language plpgsql stable
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
begin
  return (
    select jsonb_agg(
      jsonb_strip_nulls(jsonb_build_object(
        'place', s.place, 'name', s.name, 'kind', s.kind, 'until', s.until, 'attempt', s.attempt, 'at', s.at))
        || case when s.result is null then '{}' else jsonb_build_object('result', s.result) end
      order by s.place)
    from pgwake.steps as s
    where s.job_id = pack_steps.job_id);
end
$$;

comment on function pgwake.pack_steps is
  'Internal: the steps of a live job as one value.';
revoke all on function pgwake.pack_steps from public;

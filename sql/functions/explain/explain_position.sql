-- For explain_job: how many due jobs would be claimed before a due pending one, counted
-- up to 10,000. Steps through the priority bands in use; rides jobs_claim_idx.
create or replace function pgwake.explain_position(job pgwake.jobs_live)
returns text
language plpgsql stable
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
declare
  v_band int := case when job.crash_count >= 2 then 301 else -101 end;
  v_end int := case when job.crash_count >= 2 then 503 else 302 end;
  v_priority int;
  v_found bigint;
  v_count bigint := 0;
begin
  loop
    select least(j.crash_count, 2) * 201 - j.priority, j.priority into v_band, v_priority
    from pgwake.jobs_live as j
    where j.queue = job.queue and j.status = 'pending'
      and least(j.crash_count, 2) * 201 - j.priority > v_band
      and least(j.crash_count, 2) * 201 - j.priority < v_end
    order by least(j.crash_count, 2) * 201 - j.priority
    limit 1;
    exit when not found or v_count >= 10000;
    continue when v_priority < job.priority;
    select count(*) into v_found
    from (
      select from pgwake.jobs_live as j
      where j.queue = job.queue and j.status = 'pending'
        and least(j.crash_count, 2) * 201 - j.priority = v_band
        and (j.run_at, j.id) < (
          case when v_priority > job.priority then pgwake.now() else job.run_at end,
          case when v_priority > job.priority then 9223372036854775807 else job.id end)
      limit 10000 - v_count
    ) as before;
    v_count := v_count + v_found;
  end loop;
  return case
    when v_count = 0 then 'It is the next of its queue: whoever claims next takes it.'
    when v_count >= 10000 then
      'Due jobs of its queue that come first (priority, then run_at, then id): 10000 or more.'
    else format('Due jobs of its queue that come first (priority, then run_at, then id): %s.', v_count)
  end;
end
$$;

comment on function pgwake.explain_position is
  'Internal: for explain_job, how many due jobs come before one.';
revoke all on function pgwake.explain_position from public;

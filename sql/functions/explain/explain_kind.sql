-- For explain_job: what the max_running and rate_limit of a job's kind have against it.
-- Rides kinds_pkey and, with max_running, jobs_lease_idx.
create or replace function pgwake.explain_kind(kind text)
returns text[]
language plpgsql stable
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
begin
  return array(
    select case
      when r.next_at is not null then format(
        'The rate limit of its kind (%s starts a second) is used up; the next can be at %s.', k.rate_limit,
        pgwake.say_time(r.next_at))
      when k.max_running = 0 then format('No job of its kind, %s, is started (max_running 0).', pgwake.say_name(k.name))
      else format(
        'Its kind, %s, runs %s at once in all queues (max_running), and as many run.', pgwake.say_name(k.name),
        k.max_running)
    end
    from pgwake.kind_rooms(array[explain_kind.kind], pgwake.now()) as r
    join pgwake.kinds as k on k.name = r.kind
    where r.room = 0);
end
$$;

comment on function pgwake.explain_kind is
  'Internal: for explain_job, what the limits of a job''s kind have against it.';
revoke all on function pgwake.explain_kind from public;

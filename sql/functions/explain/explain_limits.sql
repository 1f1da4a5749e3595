-- For explain_job: what a queue's max_running and rate_limit have against a pending
-- job. Counts at most one more than max_running. Rides jobs_lease_idx.
create or replace function pgwake.explain_limits(queue text)
returns text[]
language plpgsql stable
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
declare
  v_policy pgwake.queues;
  v_running bigint[];
  v_tokens double precision;
  v_lines text[] := '{}';
begin
  select q.* into v_policy from pgwake.queues as q where q.name = explain_limits.queue;
  if v_policy.max_running is not null then
    v_running := array(
      select j.id
      from pgwake.jobs_live as j
      where j.queue = explain_limits.queue and j.status = 'running'
      limit v_policy.max_running + 1);
    if cardinality(v_running) >= v_policy.max_running then
      v_lines := v_lines || format(
        'Its queue runs %s at once (max_running), and as many run: %s%s.', v_policy.max_running,
        pgwake.say_jobs(v_running[:5]),
        case when cardinality(v_running) > 5 then format(' and %s more', cardinality(v_running) - 5) else '' end);
    end if;
  end if;

  if v_policy.rate_limit is not null then
    select b.tokens + v_policy.rate_limit * extract(epoch from pgwake.now() - b.filled_at) into v_tokens
    from pgwake.rate_buckets as b where b.queue = explain_limits.queue;
    if v_tokens < 1 - 1e-9 then
      v_lines := v_lines || format(
        'Its queue''s rate limit (%s claims a second) is used up; the next claim can be at %s.', v_policy.rate_limit,
        pgwake.say_time(pgwake.now() + interval '1 second' * ((1 - v_tokens) / v_policy.rate_limit)));
    end if;
  end if;
  return v_lines;
end
$$;

comment on function pgwake.explain_limits is
  'Internal: for explain_job, what a queue''s limits have against a job.';
revoke all on function pgwake.explain_limits from public;

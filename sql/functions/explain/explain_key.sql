-- For explain_job: why a job that waits for its concurrency key has not been admitted.
-- Counts at most 10,001 that hold the key and 20,000 that wait. Rides jobs_key_idx.
create or replace function pgwake.explain_key(job pgwake.jobs_live)
returns text[]
language plpgsql stable
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
declare
  v_key text := pgwake.say_name(job.concurrency_key);
  v_own_limit int;
  v_own_rate double precision;
  v_policy pgwake.queues;
  v_limit int;
  v_token_at timestamptz;
  v_holders bigint[];
  v_before_count bigint;
begin
  select q.* into v_policy from pgwake.queues as q where q.name = job.queue;
  select l.max_running, l.rate_limit into v_own_limit, v_own_rate
  from pgwake.concurrency_limits as l where l.queue = job.queue and l.key = job.concurrency_key;
  v_limit := coalesce(v_own_limit, v_policy.key_limit, 1);
  if v_limit = 0 then
    return array[format(
      'Its concurrency key %s is closed: its limit in pgwake.concurrency_limits is 0.', v_key)];
  end if;

  v_holders := array(
    select j.id
    from pgwake.jobs_live as j
    where j.queue = job.queue and j.concurrency_key = job.concurrency_key
      and j.has_parents_left is not true and j.status = 'running'
    union all
    -- Each by itself: before 17 the server may take two at once for a filter.
    select j.id
    from pgwake.jobs_live as j
    where j.queue = job.queue and j.concurrency_key = job.concurrency_key
      and j.has_parents_left is not true and j.status = 'pending'
    limit 10001);
  if cardinality(v_holders) >= v_limit then
    return array[format(
      'Its concurrency key %s is at its limit of %s (%s): %s%s.', v_key, v_limit,
      case when v_own_limit is null then 'key_limit of the queue' else 'pgwake.concurrency_limits' end,
      pgwake.say_jobs(v_holders[:5]),
      case when cardinality(v_holders) > 5 then format(' and %s more', cardinality(v_holders) - 5) else '' end)];
  elsif job.run_at > pgwake.now() then
    return '{}';
  end if;
  select r.token_at into v_token_at
  from pgwake.key_room(
    job.queue, job.concurrency_key, v_limit, coalesce(v_own_rate, v_policy.key_rate), v_policy.key_burst, pgwake.now())
    as r
  where r.room <= 0;
  if v_token_at is not null then
    return array[format(
      'Its concurrency key %s has used its rate (%s starts a second); the next can be at %s.', v_key,
      coalesce(v_own_rate, v_policy.key_rate), pgwake.say_time(v_token_at))];
  end if;

  select count(*) into v_before_count
  from (
    (select j.run_at
     from pgwake.jobs_live as j
     where j.queue = job.queue and j.concurrency_key = job.concurrency_key
       and j.has_parents_left is not true and j.status = 'waiting'
       and j.priority > job.priority
     order by j.priority desc, j.run_at, j.id
     limit 10000)
    union all
    (select j.run_at
     from pgwake.jobs_live as j
     where j.queue = job.queue and j.concurrency_key = job.concurrency_key
       and j.has_parents_left is not true and j.status = 'waiting'
       and j.priority = job.priority and (j.run_at, j.id) < (job.run_at, job.id)
     order by j.run_at, j.id
     limit 10000)
  ) as before
  where before.run_at <= pgwake.now();
  return array[case
    when v_before_count = 0 then format(
      'Its concurrency key %s has room (%s of %s taken): the next claim of the queue lets it in, or '
      'select pgwake.maintain(''keys'').', v_key, cardinality(v_holders), v_limit)
    else format(
      'Its concurrency key %s has room (%s of %s taken). Due jobs that wait for it and come first: %s.',
      v_key, cardinality(v_holders), v_limit,
      case when v_before_count >= 10000 then '10000 or more' else v_before_count::text end)
  end];
end
$$;

comment on function pgwake.explain_key is
  'Internal: for explain_job, why a concurrency key has not let a job in.';
revoke all on function pgwake.explain_key from public;

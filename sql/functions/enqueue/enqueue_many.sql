-- Adds many jobs by one statement; returns their ids in the order of the jobs.
--
-- jobs is an array of objects. Their fields are the parameters of enqueue(), with the
-- same meanings and defaults, also where a field is null; run_at has an offset, delay is
-- an interval's text ("90 seconds"). And two more:
--   expires_at    a job not started by then is cancelled
--   unique_until  the unique key stays taken until then, by jobs that have ended too
-- Where a unique key is taken or stands earlier in the array, that job's on_conflict says
-- what becomes of it, and what id it gets.
--
-- All or none. Raises PW003, with the place in the array from 1, for a field that is
-- unknown or can't be meant; class 22 where its type is another; else as enqueue().
-- Unique keys are added in their order, so that calls do not deadlock over them; another
-- open transaction that adds one is waited for. Without any it is a plain INSERT. Rides
-- jobs_unique_key_idx.
create or replace function pgwake.enqueue_many(jobs jsonb)
returns bigint[]
language plpgsql volatile
security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
  v_fields constant text[] := '{
    kind, payload, queue, priority, run_at, delay, max_attempts, unique_key, on_conflict, metadata, concurrency_key,
    depends_on, on_parent_failure, webhook, expires_at, unique_until}';
  v_ids bigint[];
  v_has_keys boolean;
  v_has_periods boolean;
  v_constraint text;
  v_place bigint;
  v_job record;
begin
  if jsonb_typeof(enqueue_many.jobs) is distinct from 'array' then
    perform pgwake.raise_invalid('jobs is not an array', 'Use an array of objects: [{"kind": "a"}].');
  end if;

  select case n.name when '' then 'is not an object' else format('has a field %L', n.name) end as problem, e.place
  into v_job
  from jsonb_array_elements(enqueue_many.jobs) with ordinality as e(job, place)
  cross join lateral jsonb_object_keys(
    case jsonb_typeof(e.job) when 'object' then e.job - v_fields else '{"": 0}' end) as n(name)
  where case jsonb_typeof(e.job) when 'object' then e.job - v_fields <> '{}' else true end
  limit 1;
  if found then
    perform pgwake.raise_invalid(
      format('job %s of the array %s', v_job.place, v_job.problem),
      'A job is an object with the parameters of pgwake.enqueue; what is its own stands in payload.');
  end if;

  select min(g.place) filter (where g.problem is not null), bool_or(g.unique_key is not null),
    bool_or(g.unique_until is not null)
  into v_place, v_has_keys, v_has_periods
  from pgwake.given_jobs(enqueue_many.jobs) as g;
  if v_place is not null then
    perform pgwake.raise_invalid(
      format('job %s of the array %s', g.place, g.problem), 'Correct the job, or leave it out; none has been added.')
    from pgwake.given_jobs(enqueue_many.jobs) as g
    where g.place = v_place;
  end if;

  if v_has_keys is not true then
    with added as (
      insert into pgwake.jobs
        (kind, payload, queue, priority, run_at, max_attempts, metadata, concurrency_key, depends_on, on_parent_failure,
         webhook, expires_at)
      select g.kind, g.payload, g.queue, g.priority, g.due_at, g.max_attempts, g.metadata, g.concurrency_key,
        g.depends_on, g.on_parent_failure, g.webhook, g.expires_at
      from pgwake.given_jobs(enqueue_many.jobs) as g
      returning id
    )
    select array_agg(a.id) into v_ids from added as a;  -- which come as they were added
    return coalesce(v_ids, '{}');
  end if;

  if v_has_periods is not true then
    return pgwake.add_unique_jobs(enqueue_many.jobs);
  end if;
  for v_try in 1..10 loop
    begin
      v_ids := pgwake.add_unique_jobs(enqueue_many.jobs);
      exit;
    exception when sqlstate 'PW005' then
      -- Taken since our snapshot, by a job that has ended by now: the next one sees it.
      get stacked diagnostics v_constraint = constraint_name;
      if v_constraint <> 'unique_periods_pkey' or v_try = 10 then
        raise;
      end if;
    end;
  end loop;
  return v_ids;
end
$$;

comment on function pgwake.enqueue_many is
  'Adds many jobs, an array of objects with enqueue''s parameters; returns their ids in that order.';
revoke all on function pgwake.enqueue_many from public;

-- Adds many jobs by one statement; returns their ids in the order of the jobs.
--
-- jobs is an array of objects. Their fields are the parameters of enqueue(), with the
-- same meanings and defaults, and expires_at: a job not started by then is cancelled;
-- also where a field is null: run_at has an offset, delay is an interval's text ("90
-- seconds"). Where a unique key is live or stands earlier in the array, that job's
-- on_conflict says what becomes of it, and what id it gets.
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
    depends_on, on_parent_failure, webhook, expires_at}';
  v_ids bigint[];
  v_left jsonb;
  v_has_keys boolean;
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

  select min(g.place) filter (where g.problem is not null), bool_or(g.unique_key is not null)
  into v_place, v_has_keys
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

  with given as materialized (
    select nextval('pgwake.jobs_id_seq') as id, g.* from pgwake.given_jobs(enqueue_many.jobs) as g
  ), added as (
    insert into pgwake.jobs
      (id, kind, payload, queue, priority, run_at, max_attempts, unique_key, metadata, concurrency_key, depends_on,
       on_parent_failure, webhook, expires_at)
    select g.id, g.kind, g.payload, g.queue, g.priority, g.due_at, g.max_attempts, g.unique_key, g.metadata,
      g.concurrency_key, g.depends_on, g.on_parent_failure, g.webhook, g.expires_at
    from given as g
    order by case when g.unique_key is not null then g.kind end, g.unique_key, g.place
    on conflict do nothing
    returning id
  )
  select array_agg(g.id order by g.place),
    jsonb_agg(to_jsonb(g) order by g.kind, g.unique_key, g.place) filter (where a.id is null)
  into v_ids, v_left
  from given as g
  left join added as a on a.id = g.id;
  for v_job in
    select j.*
    from jsonb_to_recordset(v_left) as j(
      place int, kind text, payload jsonb, queue text, priority int, run_at timestamptz, delay interval,
      max_attempts int, unique_key text, on_conflict text, metadata jsonb, concurrency_key text, depends_on bigint[],
      on_parent_failure text, webhook text, expires_at timestamptz)
  loop
    v_ids[v_job.place] := pgwake.enqueue(
      v_job.kind, v_job.payload, v_job.queue, v_job.priority, v_job.run_at, v_job.delay, v_job.max_attempts,
      v_job.unique_key, v_job.on_conflict, v_job.metadata, v_job.concurrency_key, v_job.depends_on,
      v_job.on_parent_failure, v_job.webhook);
    if v_job.expires_at is not null then  -- which enqueue does not take
      update pgwake.jobs_live as j
      set expires_at = v_job.expires_at
      where j.id = v_ids[v_job.place]
        and (v_job.on_conflict = 'replace' or j.id = currval('pgwake.jobs_id_seq'));  -- or it is not its own
    end if;
  end loop;
  return v_ids;
end
$$;

comment on function pgwake.enqueue_many is
  'Adds many jobs, an array of objects with enqueue''s parameters; returns their ids in that order.';
revoke all on function pgwake.enqueue_many from public;

-- The jobs of enqueue_many's array with the defaults filled in, by their places from 1, and
-- what is wrong with each: null, or how a message goes on after "job 1". Internal. Plain
-- SQL without a set clause, so that the planner puts it inline.
create or replace function pgwake.given_jobs(jobs jsonb)
returns table (
  place bigint,
  kind text,
  payload jsonb,
  queue text,
  priority int,
  run_at timestamptz,
  delay interval,
  due_at timestamptz,
  max_attempts int,
  unique_key text,
  on_conflict text,
  metadata jsonb,
  concurrency_key text,
  depends_on bigint[],
  on_parent_failure text,
  webhook text,
  expires_at timestamptz,
  unique_until timestamptz,
  problem text
)
language sql stable
as $$
  select j.place, j.kind, coalesce(j.payload, '{}'), coalesce(j.queue, 'default'), coalesce(j.priority, 0), j.run_at,
    j.delay,
    coalesce(j.run_at, pgwake.now()) operator(pg_catalog.+) coalesce(j.delay, '0'::pg_catalog.interval),
    j.max_attempts, j.unique_key, coalesce(j.on_conflict, 'return'), j.metadata, j.concurrency_key,
    case when j.depends_on operator(pg_catalog.<>) '{}'::pg_catalog.int8[] then j.depends_on end,
    j.on_parent_failure, j.webhook, j.expires_at, j.unique_until,
    case
      when j.kind is null then 'has no kind'
      when not (j.priority operator(pg_catalog.>=) -100 and j.priority operator(pg_catalog.<=) 100)
        then pg_catalog.format('has priority %s: use -100 to 100', j.priority)
      when j.run_at is not null and j.delay is not null then 'has run_at and delay: give one of them'
      when not (j.delay operator(pg_catalog.>=) '0'::pg_catalog.interval
          and j.delay operator(pg_catalog.<=) '100 years'::pg_catalog.interval)
        then pg_catalog.format('has delay %s: use an interval from 0 to 100 years', j.delay)
      when j.unique_until is not null and j.unique_key is null
        then 'has unique_until and no unique_key: give both, or none'
      when not j.on_conflict operator(pg_catalog.=) any ('{return,replace,raise}'::pg_catalog.text[])
        then pg_catalog.format('has on_conflict %L: use return, replace or raise', j.on_conflict)
    end
  from rows from (
    pg_catalog.jsonb_to_recordset(given_jobs.jobs) as (
      kind pg_catalog.text, payload pg_catalog.jsonb, queue pg_catalog.text, priority pg_catalog.int4,
      run_at pg_catalog.timestamptz, delay pg_catalog.interval, max_attempts pg_catalog.int4,
      unique_key pg_catalog.text, on_conflict pg_catalog.text, metadata pg_catalog.jsonb,
      concurrency_key pg_catalog.text, depends_on pg_catalog.int8[], on_parent_failure pg_catalog.text,
      webhook pg_catalog.text, expires_at pg_catalog.timestamptz, unique_until pg_catalog.timestamptz)
  ) with ordinality as j(
    kind, payload, queue, priority, run_at, delay, max_attempts, unique_key, on_conflict, metadata, concurrency_key,
    depends_on, on_parent_failure, webhook, expires_at, unique_until, place)
$$;

comment on function pgwake.given_jobs is
  'Internal: the jobs of enqueue_many''s array, and what is wrong with each.';
revoke all on function pgwake.given_jobs from public;

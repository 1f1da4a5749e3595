-- Internal: does what retry_failed says.
create or replace function pgwake.redrive_failed(
  of_queue text, of_kind text, of_fingerprint text, max_jobs int, rate double precision, patch jsonb,
  dry_run boolean
)
returns table (
  job_id bigint,
  queue text,
  kind text,
  run_at timestamptz,
  payload jsonb,
  outcome text
)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_custom_plan
set jit = off
as $$
#variable_conflict use_column
declare
  v_now timestamptz := pgwake.now();
  v_audience pgwake.audience := pgwake.get_audience();
  v_chosen bigint[];
  v_payloads jsonb[] := '{}';
  v_retried bigint[];
  v_events text[];
begin
  if redrive_failed.max_jobs is null or redrive_failed.max_jobs not between 1 and 100000 then
    perform pgwake.raise_invalid(
      format('max_jobs is %s', coalesce(redrive_failed.max_jobs::text, 'null')),
      'Use 1 to 100000, and repeat it for more.');
  end if;
  if not (redrive_failed.rate >= 0.001 and redrive_failed.rate <= 1000000) then
    perform pgwake.raise_invalid(
      format('rate is %s', redrive_failed.rate), 'Use 0.001 to 1000000 jobs a second, or null for all at once.');
  end if;
  if jsonb_typeof(redrive_failed.patch) <> 'object' then
    perform pgwake.raise_invalid(
      format('patch is of type %s', jsonb_typeof(redrive_failed.patch)),
      'Use a JSON object: its fields replace those of the payload, null removes one.');
  end if;
  if redrive_failed.dry_run is null then
    perform pgwake.raise_invalid('dry_run is null', 'Use true to see what would be done, or false to do it.');
  end if;

  if redrive_failed.dry_run then
    v_chosen := array(
      select j.id
      from pgwake.jobs_failed as j
      where (redrive_failed.of_queue is null or j.queue = redrive_failed.of_queue)
        and (redrive_failed.of_kind is null or j.kind = redrive_failed.of_kind)
        and (redrive_failed.of_fingerprint is null or j.fingerprint = redrive_failed.of_fingerprint)
      order by j.finished_at, j.id
      limit redrive_failed.max_jobs
    );
  else
    v_chosen := array(
      select j.id
      from pgwake.jobs_failed as j
      where (redrive_failed.of_queue is null or j.queue = redrive_failed.of_queue)
        and (redrive_failed.of_kind is null or j.kind = redrive_failed.of_kind)
        and (redrive_failed.of_fingerprint is null or j.fingerprint = redrive_failed.of_fingerprint)
      order by j.finished_at, j.id
      limit redrive_failed.max_jobs
      for update skip locked
    );
  end if;

  if redrive_failed.patch is not null then
    v_payloads := array(
      select pgwake.patch_payload(j.id, j.kind, j.payload, redrive_failed.patch)
      from unnest(v_chosen) with ordinality as u(id, place)
      join pgwake.jobs_failed as j on j.id = u.id
      order by u.place);
  end if;

  if redrive_failed.dry_run then
    return query
    select c.id, c.queue, c.kind, c.run_at, c.payload,
      case
        when c.unique_key is null then 'would_retry'
        when row_number() over (partition by c.kind, c.unique_key order by c.place) > 1
          or exists (
            select from pgwake.jobs_live as l where l.kind = c.kind and l.unique_key = c.unique_key
          )
        then 'conflict'
        else 'would_retry'
      end
    from (
      select u.place, j.id, j.queue, j.kind, j.unique_key, coalesce(u.payload, j.payload) as payload,
        v_now + coalesce(make_interval(secs => (u.place - 1) / redrive_failed.rate), interval '0') as run_at
      from unnest(v_chosen, v_payloads) with ordinality as u(id, payload, place)
      join pgwake.jobs_failed as j on j.id = u.id
    ) as c
    order by c.place;
    return;
  end if;

  -- In order of the unique keys, so that two who bring the same keys back take turns.
  with retried as (
    insert into pgwake.jobs_live
      (id, queue, kind, status, priority, run_at, max_attempts, payload, metadata, unique_key,
       concurrency_key, depends_on, on_parent_failure, has_parents_left, webhook, progress, created_at,
       errors, has_steps)
    select j.id, j.queue, j.kind,
      case when num_nonnulls(j.concurrency_key, j.depends_on) = 0 then 'pending' else 'waiting' end,
      j.priority, v_now + coalesce(make_interval(secs => (u.place - 1) / redrive_failed.rate), interval '0'),
      j.max_attempts, coalesce(u.payload, j.payload), j.metadata, j.unique_key, j.concurrency_key, j.depends_on,
      case when j.depends_on is not null then 'run' end, case when j.depends_on is not null then true end, j.webhook,
      j.progress, j.created_at, j.errors, case when j.steps is not null then true end
    from unnest(v_chosen, v_payloads) with ordinality as u(id, payload, place)
    join pgwake.jobs_failed as j on j.id = u.id
    order by j.kind, j.unique_key, u.place
    on conflict do nothing
    returning id, queue, kind, status, run_at, concurrency_key, has_parents_left
  ),
  gone as (
    delete from pgwake.jobs_failed as j where j.id = any (array(select r.id from retried as r))
    returning case when j.steps is not null then pgwake.put_back_steps(j.id, j.steps) end
  ),
  counted as (
    insert into pgwake.counts (queue, at, live_rows, waiting_rows, failed_rows)
    select r.queue, v_now, count(*), nullif(count(*) filter (where r.status = 'waiting'), 0), -count(*)
    from retried as r
    group by r.queue
  ),
  rechecks as (
    insert into pgwake.rechecks (queue, at, key, child_id)
    select r.queue, min(r.run_at), r.concurrency_key, null
    from retried as r
    where r.concurrency_key is not null and r.has_parents_left is null
    group by r.queue, r.concurrency_key
    union all
    select r.queue, v_now, null, r.id from retried as r where r.has_parents_left
  )
  select array_agg(r.id),
    array_agg(pgwake.status_event(r.id, r.queue, r.kind, 'failed', r.status))
      filter (where pgwake.is_announced(r.queue, v_audience))
  into v_retried, v_events
  from retried as r;
  perform pgwake.wake(q.queue)
  from (select distinct j.queue from pgwake.jobs_live as j where j.id = any (v_retried)) as q;
  perform pgwake.announce(v_events);

  return query
  select u.id, coalesce(l.queue, f.queue), coalesce(l.kind, f.kind), coalesce(l.run_at, f.run_at)::timestamptz,
    coalesce(l.payload, f.payload)::jsonb, case when l.id is null then 'conflict' else 'retried' end
  from unnest(v_chosen) with ordinality as u(id, place)
  left join pgwake.jobs_live as l on l.id = u.id
  left join pgwake.jobs_failed as f on f.id = u.id
  order by u.place;
end
$$;

comment on function pgwake.redrive_failed is
  'Internal: does what retry_failed says.';
revoke all on function pgwake.redrive_failed from public;

-- For diagnose: jobs that nobody will run.
--
-- queue_without_worker  error    a job is due for a minute, and no live worker has its
--                                queue, which is not paused
-- queue_paused          notice   until it is resumed, with a job due for an hour
-- queue_full            warning  nine tenths of its max_pending wait, so inserts are refused
-- jobs_expire           warning  ten jobs of a kind were not started by their expires_at, the
--                                last within the hour
-- suspect_waits         warning  a job that crashed twice is due for 15 minutes: no
--                                quarantine takes it
-- kind_without_worker   warning  given back within the hour, or the first of its queue and
--                                priority for a minute; no live worker handles it
-- kind_bounces          notice   given back within ten minutes; some worker handles it
-- dead_letters          notice   more than 10,000 of a queue are kept
--
-- Who works is known from report_worker_slots. At most a hundred queues are looked at whether
-- their jobs are due. Rides jobs_claim_idx and rechecks_due_idx.
create or replace function pgwake.diagnose_queues()
returns setof pgwake.finding
language plpgsql stable
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
declare
  v_now timestamptz := pgwake.now();
  v_loaded text[];  -- queues with jobs that don't run
  v_loads bigint[];  -- and with how many
  v_heaps text[];
  v_heap_sizes bigint[];
  v_first_kinds text[];
begin
  select array_agg(s.queue) filter (where s.idle > 0), array_agg(s.idle) filter (where s.idle > 0),
    array_agg(s.queue) filter (where s.failed > 10000), array_agg(s.failed) filter (where s.failed > 10000)
  into v_loaded, v_loads, v_heaps, v_heap_sizes
  from (
    select r.queue, coalesce(sum(r.live_rows), 0) - coalesce(sum(r.running_rows), 0) as idle,
      sum(r.failed_rows)::bigint as failed
    from pgwake.count_rows as r
    group by r.queue
  ) as s;

  return query
  select 'dead_letters', 'notice', h.queue, format('%s dead letters of the queue %s are kept', h.size,
      pgwake.say_name(h.queue)),
    format('select * from pgwake.list_failed(queue => %L);  -- then retry_failed() or purge()', h.queue),
    h.size::double precision
  from unnest(v_heaps, v_heap_sizes) as h(queue, size)
  order by h.size desc
  limit 10;

  return query
  select 'queue_full', 'warning', q.name,
    format('%s jobs of the queue %s are pending or waiting, and it takes %s: inserts beyond are refused',
      l.idle,
      pgwake.say_name(q.name), q.max_pending),
    format('select * from pgwake.get_queue_stats(%L);  -- then more workers, or a higher max_pending', q.name),
    l.idle::double precision
  from unnest(v_loaded, v_loads) as l(queue, idle)
  join pgwake.queues as q on q.name = l.queue
  where l.idle >= 0.9 * q.max_pending
  order by l.idle desc
  limit 10;

  return query
  select 'jobs_expire', 'warning', k.name,
    format('%s jobs of the kind %s were not started by their expires_at, the last at %s', k.expired_count,
      pgwake.say_name(k.name), pgwake.say_time(k.expired_at)),
    'select * from pgwake.get_queue_stats();  -- then more workers where jobs are late, or a later expires_at',
    k.expired_count::double precision
  from pgwake.kinds as k
  where k.expired_count >= 10 and k.expired_at > v_now - interval '1 hour'
  order by k.expired_count desc
  limit 10;

  return query
  with idle as materialized (
    select u.queue, coalesce(q.paused_until > v_now, false) as is_paused
    from unnest(v_loaded) as u(queue)
    left join pgwake.queues as q on q.name = u.queue
    left join (
      select distinct v.queue
      from pgwake.workers as w
      cross join unnest(w.queues) as v(queue)
      where pgwake.is_live(w.seen_at)
    ) as a on a.queue = u.queue
    where q.paused_until = 'infinity' or (q.paused_until > v_now) is not true and a.queue is null
    limit 100
  )
  select case when d.is_paused then 'queue_paused' else 'queue_without_worker' end,
    case when d.is_paused then 'notice' else 'error' end, d.queue,
    format('a job of the queue %s has been due for %s, and %s', pgwake.say_name(d.queue),
      date_trunc('second', v_now - d.due_at),
      case when d.is_paused then 'it is paused until somebody resumes it' else 'no live worker works on it' end),
    case when d.is_paused then format('select pgwake.resume_queue(%L);', d.queue)
      else 'select name, queues from pgwake.list_workers() where is_live;  -- then start one for it: PGWAKE_QUEUES' end,
    extract(epoch from v_now - d.due_at)::double precision
  from (
    select n.*, row_number() over (partition by n.is_paused order by n.due_at) as place
    from (select i.*, pgwake.next_run_at(i.queue) as due_at from idle as i) as n
    where n.due_at < v_now - case when n.is_paused then interval '1 hour' else interval '1 minute' end
  ) as d
  where d.place <= 10;

  if pgwake.next_suspect_run_at(v_loaded) < v_now - interval '15 minutes' then
    return query
    select 'suspect_waits', 'warning', j.id::text,
      format('the job %s of the queue %s crashed twice, and no quarantine has taken it for %s', j.id,
        pgwake.say_name(u.queue), date_trunc('second', v_now - j.run_at)),
      format('select pgwake.explain_job(%s);  -- pgwake run has a quarantine, a worker in an application none', j.id),
      extract(epoch from v_now - j.run_at)::double precision
    from unnest(v_loaded) as u(queue)
    cross join lateral (
      select l.id, l.run_at
      from pgwake.jobs_live as l
      where l.queue = u.queue and l.status = 'pending' and l.run_at < v_now - interval '15 minutes'
        and least(l.crash_count, 2) * 201 - l.priority between 302 and 502
      limit 1
    ) as j
    limit 10;
  end if;

  -- What nobody takes comes to stand first.
  v_first_kinds := array(
    select distinct f.kind
    from unnest(v_loaded[:100]) as u(queue)
    cross join lateral (
      with recursive bands as (
        select -102 as band, null::text collate "C" as kind, null::timestamptz as run_at
        union all
        select n.band, n.kind, n.run_at
        from bands as b
        cross join lateral (
          select least(j.crash_count, 2) * 201 - j.priority as band, j.kind, j.run_at
          from pgwake.jobs_live as j
          where j.queue = u.queue and j.status = 'pending' and least(j.crash_count, 2) * 201 - j.priority > b.band
          order by least(j.crash_count, 2) * 201 - j.priority, j.run_at, j.id
          limit 1
        ) as n
      )
      select b.kind from bands as b where b.run_at < v_now - interval '1 minute'
    ) as f);

  return query
  select k.check_name, k.severity, k.name,
    format('jobs of the kind %s are given back by workers that don''t know it; %s', pgwake.say_name(k.name), k.but),
    k.fix, k.bounce_count::double precision
  from (
    select 'kind_without_worker' as check_name, 'warning' as severity, k.name, 'no live worker handles it' as but,
      format('select * from pgwake.cancel_jobs(kind => %L, dry_run => true);  -- if nobody is to run them; else start '
        'a worker that handles it', k.name) as fix, k.bounce_count, k.bounced_at
    from pgwake.list_kinds() as k
    where k.live_worker_count = 0
      and (k.bounced_at > v_now - interval '1 hour' or k.bounce_count > 0 and k.name = any (v_first_kinds))
    union all
    select 'kind_bounces', 'notice', k.name, 'others handle it',
      'select name, queues, kinds from pgwake.list_workers();  -- all workers of a queue should know its kinds',
      k.bounce_count, k.bounced_at
    from pgwake.list_kinds() as k
    where k.live_worker_count > 0 and k.bounced_at > v_now - interval '10 minutes'
  ) as k
  order by k.severity desc, k.bounced_at desc
  limit 10;
end
$$;

comment on function pgwake.diagnose_queues is
  'Internal: for diagnose, jobs that nobody will run.';
revoke all on function pgwake.diagnose_queues from public;

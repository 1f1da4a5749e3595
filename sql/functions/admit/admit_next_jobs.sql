-- Hands the room of concurrency keys on: makes as many of the next jobs that wait for a
-- key pending as its jobs have just given their room back, and wakes their queues.
-- Internal: called in the transaction that ended these jobs or put them off, in a later
-- statement. Parallel arrays, one entry a job.
--
-- No lock of the key is needed: for everybody else one job leaves the room at the moment
-- the next one comes in, so a limit that held goes on holding. What can't be handed on
-- gets a recheck, as from flag_keys: nobody waits who is seen here and is free, the
-- first is not due, the limit was lowered, or the key has a rate, whose tokens are taken
-- under its lock alone. Also under repeatable read, where a job
-- may have changed since.
--
-- Waits for nobody. Rides jobs_key_idx and jobs_live_pkey.
create or replace function pgwake.admit_next_jobs(queues text[], keys text[])
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set enable_nestloop = on
set jit = off
as $$
declare
  v_audience constant pgwake.audience := pgwake.get_audience();
  v_now constant timestamptz := clock_timestamp() + (pgwake.now() - now());
  v_queues text[];
  v_events text[];
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    perform pgwake.flag_keys(admit_next_jobs.queues, admit_next_jobs.keys);
    return;
  end if;
  with freed as materialized (
    select u.queue, u.key, count(*)::int as jobs
    from unnest(admit_next_jobs.queues, admit_next_jobs.keys) as u(queue, key)
    group by u.queue, u.key
  ),
  due as materialized (
    select f.queue, f.key, f.jobs, array(
      select w.id
      from (
        select j.id, j.run_at
        from pgwake.jobs_live as j
        where j.queue = f.queue and j.status = 'waiting' and j.concurrency_key = f.key
          and j.has_parents_left is not true
        order by j.priority desc, j.run_at, j.id
        limit f.jobs
        for update skip locked
      ) as w
      where w.run_at <= v_now
    ) as ids
    from freed as f
  ),
  chosen as materialized (
    select d.queue, d.key, d.jobs, case when d.ids = '{}' then d.ids else d.ids[:(
      select case when coalesce(c.rate_limit, q.key_rate) is null then r.room else 0 end
      from (values (1)) as v
      left join pgwake.queues as q on q.name = d.queue
      left join pgwake.concurrency_limits as c on c.queue = d.queue and c.key = d.key
      cross join lateral pgwake.key_room(
        d.queue, d.key, coalesce(c.max_running, q.key_limit, 1), null, null, v_now) as r
    )] end as ids
    from due as d
  ),
  admitted as (
    update pgwake.jobs_live as j
    set status = 'pending', run_at = v_now
    where j.id = any (array(select unnest(c.ids) from chosen as c))
    returning j.id, j.queue, j.kind
  ),
  counted as (
    insert into pgwake.counts (queue, at, waiting_rows)
    select a.queue, pgwake.now(), -count(*) from admitted as a group by a.queue
  ),
  flagged as (
    insert into pgwake.rechecks (queue, at, key)
    select c.queue, pgwake.now(), c.key from chosen as c where cardinality(c.ids) < c.jobs
  )
  select array(select distinct f.queue from freed as f), (
    select array_agg(pgwake.status_event(a.id, a.queue, a.kind, 'waiting', 'pending'))
      filter (where pgwake.is_announced(a.queue, v_audience))
    from admitted as a)
  into v_queues, v_events;
  perform pgwake.wake(q.name) from unnest(v_queues) as q(name);
  if v_events is not null then
    perform pgwake.announce(v_events);
  end if;
end
$$;

comment on function pgwake.admit_next_jobs is
  'Internal: hands the room of concurrency keys on to the next jobs.';
revoke all on function pgwake.admit_next_jobs from public;

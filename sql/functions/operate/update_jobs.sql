-- Changes jobs that wait for their turn: those that are waiting or pending.
--
-- changes is an object of what is to be different; what it does not name stays:
--   priority, max_attempts  a number; priority 0, and max_attempts null: by policy
--   expires_at              a time, or null for never, of jobs that have not been tried
--   run_at                  a time with an offset; or now: due now, and what is due
--                           already keeps its place
--   queue                   the queue to move to: its limits, pause and policy hold. The
--                           priority moves along
--   payload, metadata       merged, as merge_patch says; metadata null removes it
--
-- Which jobs: by ids, or by the filters of cancel_jobs, or both; at least one must be
-- given. At most max_jobs a call, in order of id; for more, repeat it with the greatest
-- of the ids answered as after_id. dry_run answers what would be done, and does nothing.
--
-- Returns how many by outcome, and which, without outcomes that have none:
--   updated      they are different now
--   unchanged    they were so before
--   running      left: a claim was first, perhaps while this call waited for the job
--   failed, completed, cancelled, no_such_job  left: of the ids given
--   missed       left: they are no longer as asked for
--
-- A job goes on waiting for its parents, and for the room of its concurrency key: one
-- that had room waits again when it moves, or is put off (unless its queue has
-- keep_order); what its key has waiting goes by the new order. Unique keys, attempts and
-- errors stay. Each queue that gets one is woken.
--
-- All or none: raises PW003 for arguments that can't be meant and for a payload that is
-- too large or that its kind does not take; class 22 where a field is of another type;
-- the named checks (23514). Waits for whoever has a job locked; locks in id order, to
-- the end of the transaction. Rides jobs_live_pkey; what filters read: choose_jobs.
create or replace function pgwake.update_jobs(
  changes jsonb,
  job_ids bigint[] default null,
  queue text default null,
  kind text default null,
  concurrency_key text default null,
  unique_key text default null,
  status text default null,
  after_id bigint default null,
  max_jobs int default 10000,
  dry_run boolean default false
)
returns table (outcome text, job_count bigint, ids bigint[])
language plpgsql volatile
security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_custom_plan
set enable_nestloop = off
set jit = off
as $$
#variable_conflict use_column
declare
  v_now constant timestamptz := pgwake.now();
  v_is_now constant boolean := update_jobs.changes ->> 'run_at' = 'now';
  v_has_payload constant boolean := update_jobs.changes ? 'payload';
  v_has_metadata constant boolean := update_jobs.changes ? 'metadata';
  v_audience constant pgwake.audience := pgwake.get_audience();
  v_changes record;
  v_chosen bigint[];
  v_ids bigint[];
  v_updated bigint[];
  v_unchanged bigint[];
  v_left bigint[];
  v_queues text[];
  v_flagged_queues text[];
  v_flagged_keys text[];
  v_events text[];
begin
  select c.* into v_changes from pgwake.given_changes(update_jobs.changes) as c;
  if update_jobs.status not in ('waiting', 'pending') then
    perform pgwake.raise_invalid(
      format('status is %L', update_jobs.status), 'Use waiting or pending: a job that has begun can''t be changed.');
  end if;
  if cardinality(update_jobs.job_ids) > update_jobs.max_jobs then
    perform pgwake.raise_invalid(
      format('job_ids has %s ids, and max_jobs is %s', cardinality(update_jobs.job_ids), update_jobs.max_jobs),
      'Pass fewer at a time, or raise max_jobs.');
  end if;

  select c.chosen, c.ids into v_chosen, v_ids
  from pgwake.choose_jobs(
    update_jobs.job_ids, update_jobs.queue, update_jobs.kind, update_jobs.concurrency_key, update_jobs.unique_key,
    update_jobs.status, update_jobs.after_id, update_jobs.max_jobs, update_jobs.dry_run,
    with_running => false) as c;

  with old as materialized (
    select j.id, j.queue, j.kind, j.status, j.priority, j.run_at, j.max_attempts, j.concurrency_key, j.has_parents_left,
      j.expires_at, j.attempt,
      case when v_has_payload then j.payload end as payload, case when v_has_metadata then j.metadata end as metadata,
      coalesce(v_changes.queue, j.queue) as new_queue
    from pgwake.jobs_live as j
    where j.id = any (v_ids) and j.status <> 'running'
  ),
  policies as materialized (
    select d.queue, d.kind, p.priority, p.keep_order
    from (select distinct o.new_queue as queue, o.kind from old as o) as d
    cross join lateral pgwake.get_policy(d.queue, d.kind) as p
  ),
  new as materialized (
    select o.id, o.new_queue as queue, p.keep_order,
      case v_changes.priority when 0 then p.priority else coalesce(v_changes.priority, o.priority) end as priority,
      case when v_is_now then least(o.run_at, v_now) else coalesce(v_changes.run_at, o.run_at) end as run_at,
      case when update_jobs.changes ? 'max_attempts' then v_changes.max_attempts else o.max_attempts end as max_attempts,
      case when update_jobs.changes ? 'expires_at' and o.attempt = 0 then v_changes.expires_at else o.expires_at end
        as expires_at,
      case when v_has_payload
        then pgwake.patch_payload(o.id, o.kind, o.payload, v_changes.payload)::pgwake.job_payload end as payload,
      case when update_jobs.changes -> 'metadata' <> 'null'
        then pgwake.merge_patch(o.metadata, v_changes.metadata)::pgwake.job_metadata end as metadata
    from old as o
    join policies as p on p.queue = o.new_queue and p.kind = o.kind
  ),
  judged as materialized (
    select o.id,
      pgwake.status_after_change(
        o.status, o.concurrency_key, n.queue <> o.queue, n.run_at <> o.run_at, n.run_at, n.keep_order) as status,
      n.queue <> o.queue or n.priority <> o.priority or n.run_at <> o.run_at
        or n.max_attempts is distinct from o.max_attempts or n.expires_at is distinct from o.expires_at
        or n.payload is distinct from o.payload or n.metadata is distinct from o.metadata as is_changed
    from old as o
    join new as n on n.id = o.id
  ),
  updated as (
    update pgwake.jobs_live as j
    set queue = n.queue, status = g.status, priority = n.priority, run_at = n.run_at, max_attempts = n.max_attempts,
      expires_at = n.expires_at,
      payload = case when v_has_payload then n.payload else j.payload end,  -- not unpacked where it stays
      metadata = case when v_has_metadata then n.metadata else j.metadata end
    from new as n
    join judged as g on g.id = n.id
    where not update_jobs.dry_run and g.is_changed and j.id = any (v_ids) and n.id = j.id
    returning j.id, j.queue, j.kind, j.status, j.concurrency_key
  ),
  moved as materialized (
    select o.queue, o.status, -1 as rows, o.concurrency_key, o.has_parents_left
    from old as o
    join updated as u on u.id = o.id
    union all
    select u.queue, u.status, 1, u.concurrency_key, o.has_parents_left
    from old as o
    join updated as u on u.id = o.id
  ),
  counted as (
    insert into pgwake.counts (queue, at, live_rows, waiting_rows)
    select m.queue, v_now, sum(m.rows), sum(m.rows) filter (where m.status = 'waiting')
    from moved as m
    group by m.queue
    having sum(m.rows) <> 0 or sum(m.rows) filter (where m.status = 'waiting') <> 0
  )
  select
    array(select g.id from judged as g where g.is_changed order by g.id),
    array(select g.id from judged as g where not g.is_changed order by g.id),
    array(select distinct u.queue from updated as u order by u.queue),
    k.queues, k.keys,
    (
      select array_agg(pgwake.status_event(u.id, u.queue, u.kind, o.status, u.status))
      from updated as u
      join old as o on o.id = u.id
      where u.status <> o.status and pgwake.is_announced(u.queue, v_audience)
    )
  into v_updated, v_unchanged, v_queues, v_flagged_queues, v_flagged_keys, v_events
  from (
    select array_agg(m.queue) as queues, array_agg(m.concurrency_key) as keys
    from moved as m
    where m.concurrency_key is not null and m.has_parents_left is null
  ) as k;
  perform pgwake.flag_keys(v_flagged_queues, v_flagged_keys);
  perform pgwake.wake(q.name) from unnest(v_queues) as q(name);
  perform pgwake.announce(v_events);

  v_left := array(
    select u.id from unnest(update_jobs.job_ids || v_chosen) as u(id)
    except
    select u.id from unnest(v_updated || v_unchanged) as u(id));
  return query
  select l.outcome, count(*), array_agg(l.id order by l.id)
  from (
    select 'updated' as outcome, u.id from unnest(v_updated) as u(id)
    union all
    select 'unchanged', u.id from unnest(v_unchanged) as u(id)
    union all
    select case when j.status in ('waiting', 'pending') then 'missed' else coalesce(j.status, 'no_such_job') end, u.id
    from unnest(v_left) as u(id)
    left join pgwake.jobs as j on j.id = u.id and j.id = any (v_left)
    where u.id is not null
  ) as l
  group by l.outcome
  order by array_position('{updated,unchanged}', l.outcome), l.outcome;
end
$$;

comment on function pgwake.update_jobs is
  'Changes jobs that wait: priority, times, queue, attempts, payload, metadata; returns how many and which, by outcome.';
revoke all on function pgwake.update_jobs from public;

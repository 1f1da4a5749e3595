-- Writes a recheck for each concurrency key that has room and a job that is due, but no
-- recheck: for rows that came without triggers, as by a replica. Everybody else writes
-- his own. Internal: a step of maintain.
--
-- Steps from key to key, at most max_keys a call; the next call of the session goes on
-- where this one has stopped (the setting pgwake.keys_at). Returns how many rechecks it
-- wrote. Rides jobs_key_idx and rechecks_due_idx.
create or replace function pgwake.flag_missed_keys(max_keys int default 10000)
returns int
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
declare
  v_from constant jsonb := coalesce(nullif(current_setting('pgwake.keys_at', true), ''), '["", ""]');
  v_at jsonb;
  v_queues text[];
  v_count int;
begin
  with recursive keys as (
    select (v_from ->> 0) collate "C" as queue, (v_from ->> 1) collate "C" as key, 0 as place
    union all
    select n.queue, n.key, k.place + 1
    from keys as k
    cross join lateral (
      select j.queue, j.concurrency_key::text as key
      from pgwake.jobs_live as j
      where j.concurrency_key is not null and j.has_parents_left is not true
        and (j.queue, j.concurrency_key) > (k.queue, k.key)
      order by j.queue, j.concurrency_key
      limit 1
    ) as n
    where k.place < flag_missed_keys.max_keys
  ),
  unflagged as materialized (  -- first, since to look for a due job may take long
    select k.queue, k.key
    from keys as k
    where k.place > 0 and (k.queue, k.key) not in (
      select r.queue, r.key
      from pgwake.rechecks as r
      where r.queue in (select o.queue from keys as o) and r.at <= pgwake.now() and r.key is not null)
  ),
  flagged as (
    insert into pgwake.rechecks (queue, at, key)
    select u.queue, pgwake.now(), u.key
    from unflagged as u
    where (
      select r.room > 0
      from (values (1)) as v
      left join pgwake.queues as q on q.name = u.queue
      left join pgwake.concurrency_limits as c on c.queue = u.queue and c.key = u.key
      cross join lateral pgwake.key_room(
        u.queue, u.key, coalesce(c.max_running, q.key_limit, 1), coalesce(c.rate_limit, q.key_rate), q.key_burst,
        pgwake.now()) as r
    ) and exists (
      select from pgwake.jobs_live as j
      where j.queue = u.queue and j.status = 'waiting' and j.concurrency_key = u.key
        and j.has_parents_left is not true and j.run_at <= pgwake.now()
    )
    returning queue
  )
  select
    (select jsonb_build_array(k.queue, k.key) from keys as k where k.place = flag_missed_keys.max_keys),
    array(select distinct f.queue from flagged as f order by f.queue),
    (select count(*) from flagged)
  into v_at, v_queues, v_count;
  perform pgwake.wake(q.queue) from unnest(v_queues) as q(queue);
  perform set_config('pgwake.keys_at', coalesce(v_at::text, ''), false);
  return v_count;
end
$$;

comment on function pgwake.flag_missed_keys is
  'Internal: writes rechecks for concurrency keys that should have one.';
revoke all on function pgwake.flag_missed_keys from public;

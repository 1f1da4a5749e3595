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
  v_from jsonb := coalesce(nullif(current_setting('pgwake.keys_at', true), ''), '["", ""]');
  v_queue text := v_from ->> 0;
  v_key text := v_from ->> 1;
  v_rechecked text[];  -- keys of the queue that have a recheck
  v_last_queue text;
  v_count int := 0;
begin
  for v_n in 1..flag_missed_keys.max_keys loop
    select j.queue, j.concurrency_key into v_queue, v_key
    from pgwake.jobs_live as j
    where j.status = 'waiting' and j.concurrency_key is not null and j.has_parents_left is not true
      and (j.queue, j.concurrency_key) > (v_queue, v_key)
    order by j.queue, j.concurrency_key
    limit 1;
    exit when not found;
    if v_queue is distinct from v_last_queue then
      v_last_queue := v_queue;
      v_rechecked := array(
        select distinct r.key from pgwake.rechecks as r where r.queue = v_queue and r.at <= pgwake.now()
        order by r.key);
    end if;
    continue when v_key = any (v_rechecked);

    insert into pgwake.rechecks (queue, at, key)
    select v_queue, pgwake.now(), v_key
    where exists (
      select from pgwake.jobs_live as j
      where j.queue = v_queue and j.status = 'waiting' and j.concurrency_key = v_key
        and j.has_parents_left is not true and j.run_at <= pgwake.now()
    ) and (
      select count(*) from pgwake.jobs_live as j
      where j.queue = v_queue and j.status in ('pending', 'running') and j.concurrency_key = v_key
        and j.has_parents_left is not true
    ) < coalesce(
      (select c.max_running from pgwake.concurrency_limits as c where c.queue = v_queue and c.key = v_key),
      (select q.key_limit from pgwake.queues as q where q.name = v_queue), 1);
    if found then
      v_count := v_count + 1;
      perform pgwake.wake(v_queue);
    end if;
  end loop;
  perform set_config(
    'pgwake.keys_at', case when v_queue is null then '' else jsonb_build_array(v_queue, v_key)::text end, false);
  return v_count;
end
$$;

comment on function pgwake.flag_missed_keys is
  'Internal: writes rechecks for concurrency keys that should have one.';
revoke all on function pgwake.flag_missed_keys from public;

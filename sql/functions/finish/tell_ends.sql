-- Tells whom the ends of jobs concern, in the transaction of the ends, after their
-- statement: hands the room of their concurrency keys on, sees to their children, sends
-- webhooks, wakes queues with max_running, and those that wait for room of the kind, when
-- what ended was running, and announces. Internal.
--
-- Callers leave out jobs that concern nobody: without key, children and webhook, of a kind
-- that no queue waits for (kind_waiters), while nobody watches and no queue
-- (queues_ends_idx) has max_running, a webhook or status events of its own.
create or replace function pgwake.tell_ends(jobs pgwake.ended_job[])
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
  v_audience pgwake.audience := pgwake.get_audience();
  v_queues text[];
  v_keys text[];
  v_completed_parents bigint[];
  v_other_parents bigint[];
  v_hooked bigint[];
  v_limited text[];
  v_kinds text[];
  v_events text[];
begin
  select
    array_agg(e.queue) filter (where e.concurrency_key is not null and e.old_status <> 'waiting'),
    array_agg(e.concurrency_key) filter (where e.concurrency_key is not null and e.old_status <> 'waiting'),
    array_agg(e.id) filter (where e.has_children and e.new_status = 'completed'),
    array_agg(e.id) filter (where e.has_children and e.new_status <> 'completed'),
    array_agg(e.id) filter (where e.webhook is not null or e.queue = any (array(
      select q.name from pgwake.queues as q where q.webhook is not null))),
    array_agg(e.queue) filter (where e.old_status = 'running' and e.queue = any (array(
      select q.name from pgwake.queues as q where q.max_running is not null))),
    array_agg(e.kind) filter (where e.old_status = 'running' and e.kind = any (array(
      select w.kind from pgwake.kind_waiters as w))),
    array_agg(pgwake.status_event(e.id, e.queue, e.kind, e.old_status, e.new_status))
      filter (where pgwake.is_announced(e.queue, v_audience))
  into v_queues, v_keys, v_completed_parents, v_other_parents, v_hooked, v_limited, v_kinds, v_events
  from unnest(tell_ends.jobs) as e;
  if v_keys is not null then
    perform pgwake.admit_next_jobs(v_queues, v_keys);
  end if;
  if v_completed_parents is not null then
    perform pgwake.flag_children(v_completed_parents, false);
  end if;
  if v_other_parents is not null then
    perform pgwake.flag_children(v_other_parents, true);
  end if;
  if v_hooked is not null then
    perform pgwake.send_webhooks(v_hooked);
  end if;
  if num_nonnulls(v_limited, v_kinds) > 0 then
    perform pgwake.wake(l.queue)
    from (
      select u.queue from unnest(v_limited) as u(queue)
      union
      select w.queue from pgwake.kind_waiters as w where w.kind = any (v_kinds)
    ) as l;
  end if;
  if v_events is not null then
    perform pgwake.announce(v_events);
  end if;
end
$$;

comment on function pgwake.tell_ends is
  'Internal: tells whom the ends of jobs concern.';
revoke all on function pgwake.tell_ends from public;

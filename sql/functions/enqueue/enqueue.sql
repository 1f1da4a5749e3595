-- Adds a job, or finds the live one with the same unique key. For whom a plain INSERT
-- is not enough.
--
-- run_at and delay say when it becomes due: at an instant, or that long from now(), the
-- beginning of the transaction; by default at once. unique_key is unique with the kind
-- among live jobs; if it is taken, on_conflict decides:
--   return   (default) nothing is added, the live job's id is returned
--   replace  for workers, admins, and who may execute allow_replace (else 42501), since
--            whoever has added the job is not asked:
--            a waiting or pending job takes over all that is given here, and what is not
--            given gets its default: without depends_on it waits for no other job any
--            more. One that is running, or has steps, gives up its key and the new job
--            is added beside it
--   raise    PW005, with the live job's id in the detail
--
-- priority 0 is by policy: the kind's, else the queue's, else 0.
--
-- depends_on: ids of jobs, its parents; it runs when all have completed. One that fails,
-- is cancelled or was so before cancels it, unless on_parent_failure is run (default
-- cancel). Parents are older than their child, so there are no cycles.
--
-- expires_at and unique_until are for enqueue_many() and a plain INSERT.
--
-- Returns the id. Raises PW003 for arguments that can't be meant, for a payload that its
-- kind does not take (check_payload), and for parents that don't exist or are not older
-- than the job that they are given to; PW005, and the table's named checks (23514).
-- Waits for another open transaction that adds the same key. Rides jobs_unique_key_idx.
create or replace function pgwake.enqueue(
  kind text,
  payload jsonb default '{}',
  queue text default 'default',
  priority int default 0,
  run_at timestamptz default null,
  delay interval default null,
  max_attempts int default null,
  unique_key text default null,
  on_conflict text default 'return',
  metadata jsonb default null,
  concurrency_key text default null,
  depends_on bigint[] default null,
  on_parent_failure text default null,
  webhook text default null
)
returns bigint
language plpgsql volatile
security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  v_run_at timestamptz := coalesce(enqueue.run_at, pgwake.now());
  v_depends_on bigint[] := nullif(enqueue.depends_on, '{}');
  v_id bigint;
  v_queue text;
  v_status text;
  v_key text;
  v_has_steps boolean;
  v_new_status text;
begin
  if enqueue.kind is null or enqueue.queue is null or enqueue.payload is null then
    perform pgwake.raise_invalid(
      'kind, queue or payload is null', 'Leave an argument out to get its default; kind has none.');
  end if;
  if enqueue.priority is null or enqueue.priority not between -100 and 100 then
    perform pgwake.raise_invalid(
      format('priority is %s', coalesce(enqueue.priority::text, 'null')),
      'Use -100 to 100; higher runs first.');
  end if;
  if enqueue.run_at is not null and enqueue.delay is not null then
    perform pgwake.raise_invalid('run_at and delay are both given', 'Give one of them.');
  end if;
  if enqueue.delay not between interval '0' and interval '100 years' then
    perform pgwake.raise_invalid(
      format('delay is %s', enqueue.delay), 'Use an interval from 0 to 100 years.');
  end if;
  if enqueue.on_conflict is null or enqueue.on_conflict not in ('return', 'replace', 'raise') then
    perform pgwake.raise_invalid(
      format('on_conflict is %L', enqueue.on_conflict), 'Use return, replace or raise.');
  end if;
  if enqueue.on_conflict = 'replace' then
    perform pgwake.allow_replace();
  end if;
  v_run_at := v_run_at + coalesce(enqueue.delay, interval '0');

  loop
    insert into pgwake.jobs
      (kind, payload, queue, priority, run_at, max_attempts, unique_key, metadata, concurrency_key, depends_on,
       on_parent_failure, webhook)
    values
      (enqueue.kind, enqueue.payload, enqueue.queue, enqueue.priority, v_run_at,
       enqueue.max_attempts, enqueue.unique_key, enqueue.metadata, enqueue.concurrency_key,
       v_depends_on, enqueue.on_parent_failure, enqueue.webhook)
    on conflict do nothing
    returning jobs.id into v_id;
    if found then
      return v_id;
    end if;

    if enqueue.on_conflict = 'replace' then
      select j.id, j.queue, j.status, j.concurrency_key, j.has_steps into v_id, v_queue, v_status, v_key, v_has_steps
      from pgwake.jobs_live as j
      where j.kind = enqueue.kind and j.unique_key = enqueue.unique_key
      for update;
    else
      select j.id, j.status into v_id, v_status
      from pgwake.jobs_live as j
      where j.kind = enqueue.kind and j.unique_key = enqueue.unique_key;
    end if;
    continue when not found;  -- it ended in between, so the key is free now

    if enqueue.on_conflict = 'return' then
      return v_id;
    elsif enqueue.on_conflict = 'raise' then
      raise exception using
        errcode = 'PW005',
        message = format('a live job of kind %s has the unique key %L', enqueue.kind, enqueue.unique_key),
        detail = format('job %s', v_id),
        hint = 'Let it be, wait for its end, or use on_conflict => ''replace''.';
    elsif v_status = 'running' or v_has_steps then
      update pgwake.jobs_live as j set unique_key = null where j.id = v_id;
    else
      perform pgwake.check_payload(enqueue.kind, enqueue.payload)
      from pgwake.kinds as k where k.name = enqueue.kind and k.check_payload;
      v_new_status := case
        when num_nonnulls(enqueue.concurrency_key, v_depends_on) = 0 then 'pending' else 'waiting' end;
      update pgwake.jobs_live as j
      set queue = enqueue.queue, payload = enqueue.payload, metadata = enqueue.metadata,
        priority = case enqueue.priority
          when 0 then (select p.priority from pgwake.get_policy(enqueue.queue, enqueue.kind) as p)
          else enqueue.priority
        end,
        run_at = v_run_at, max_attempts = enqueue.max_attempts,
        concurrency_key = enqueue.concurrency_key, depends_on = v_depends_on,
        on_parent_failure = enqueue.on_parent_failure, webhook = enqueue.webhook, expires_at = null,
        has_parents_left = case when v_depends_on is not null then true end, status = v_new_status
      where j.id = v_id;
      insert into pgwake.counts (queue, at, live_rows, waiting_rows)
      select m.queue, pgwake.now(), m.rows, case m.status when 'waiting' then m.rows end
      from (values (v_queue, v_status, -1), (enqueue.queue, v_new_status, 1)) as m(queue, status, rows)
      where v_queue <> enqueue.queue or v_status <> v_new_status;
      if v_depends_on is not null then
        perform pgwake.flag_new_children(array[v_id]);
      end if;
      perform pgwake.wake(enqueue.queue);
      perform pgwake.flag_keys(array[v_queue, enqueue.queue], array[v_key, enqueue.concurrency_key]);
      return v_id;
    end if;
  end loop;
end
$$;

comment on function pgwake.enqueue is
  'Adds a job; returns its id, or the live job''s with the same unique key.';
revoke all on function pgwake.enqueue from public;

-- What happens by itself. Statement-level: one call an INSERT or COPY, however many
-- rows.

-- A job with parents waits until they have ended, one with a concurrency key until the
-- key has room for it. The status is looked at here: the server reads the text of a WHEN
-- anew in each statement. A time at which a job expires is one that every client reads:
-- a domain's check would have an upgrade rewrite the table.
create or replace function pgwake.before_insert_jobs()
returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  if new.expires_at not between '0001-01-02 00:00+00' and '9999-12-30 00:00+00' then
    -- As raise_invalid does, which who inserts may not call.
    raise exception using errcode = 'PW003', message = format('expires_at is %s', new.expires_at),
      hint = 'Use a time in the years 1 to 9999, or null for never.';
  end if;
  if new.status = 'pending' and num_nonnulls(new.concurrency_key, new.depends_on) > 0 then
    new.status := 'waiting';
    if new.depends_on is not null then
      new.has_parents_left := true;
    end if;
  end if;
  return new;
end
$$;

comment on function pgwake.before_insert_jobs is
  'Internal: has a job with parents or a concurrency key wait.';
revoke all on function pgwake.before_insert_jobs from public;

-- Checks the payloads of kinds that are to be checked and whether full queues are added
-- to, takes unique keys until a time, gives jobs of priority 0 their policy's (as
-- get_policy says), counts, wakes and announces. One look tells whether there is any
-- policy that matters (kinds_insert_idx, queues_insert_idx), and whether all jobs are
-- pending in one queue, as nearly always; if there is any, another whether it is of these
-- kinds, or of a queue between the first and the last. Then wake() and get_audience() are
-- asked only if the notify lock is held, or somebody watches: a tenth of a producer's
-- time. One function, since no other sees the statement's rows.
create or replace function pgwake.after_insert_jobs()
returns trigger
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
declare
  v_audience pgwake.audience;
  v_queue text;
  v_last_queue text;
  v_rows int;
  v_other_rows int;
  v_waiting_rows int;
  v_has_kinds boolean;
  v_has_queues boolean;
  v_has_periods boolean;
  v_has_priorities boolean := false;
  v_may_wake boolean := false;
  v_may_announce boolean := false;
  v_kind text;
  v_schema jsonb;
  v_place bigint;
  v_problem text[];
  v_ids bigint[];
begin
  select min(i.queue), max(i.queue), count(*), count(nullif(i.status, 'pending')),
    exists (
      select from pgwake.kinds as k
      where k.check_payload or k.priority is not null or k.declared_priority is not null),
    exists (
      select from pgwake.queues as q
      where q.priority is not null or q.wakeups <> 'asleep' or q.status_events <> 'watched'
        or q.max_pending is not null),
    count(i.unique_until) > 0
  into v_queue, v_last_queue, v_rows, v_other_rows, v_has_kinds, v_has_queues, v_has_periods
  from inserted as i;

  if v_has_kinds then
    for v_kind, v_schema in
      select k.name, k.declared_schema || '{}'  -- unpacked once, not for each row
      from (select distinct i.kind from inserted as i) as i
      join pgwake.kinds as k on k.name = i.kind
      where k.check_payload and k.declared_schema is not null
    loop
      select i.place, p.problem into v_place, v_problem
      from (select n.kind, n.payload, row_number() over () as place from inserted as n) as i
      cross join lateral pgwake.payload_problem(v_schema, i.payload, v_schema -> '$defs') as p(problem)
      where i.kind = v_kind and p.problem is not null
      limit 1;
      if found then
        raise exception using
          errcode = 'PW003',
          message = format('payload of kind %s: %s', v_kind, v_problem[1]),
          detail = format('row %s of %s', v_place, v_rows),
          hint = v_problem[2];
      end if;
    end loop;
    v_has_priorities := exists (
      select from (select distinct n.kind from inserted as n) as i
      join pgwake.kinds as k on k.name = i.kind
      where k.priority is not null or k.declared_priority is not null);
  end if;
  if v_has_queues then
    perform pgwake.check_max_pending(q.name, i.idle_rows, q.max_pending)
    from (
      select n.queue, count(*) as idle_rows
      from inserted as n
      where n.status in ('pending', 'waiting')
      group by n.queue
    ) as i
    join pgwake.queues as q on q.name = i.queue
    where q.max_pending is not null;
    select v_has_priorities or count(q.priority) > 0, count(*) filter (where q.wakeups <> 'asleep') > 0,
      count(*) filter (where q.status_events <> 'watched') > 0
    into v_has_priorities, v_may_wake, v_may_announce
    from pgwake.queues as q
    where q.name between v_queue and v_last_queue
      and (q.priority is not null or q.wakeups <> 'asleep' or q.status_events <> 'watched');
  end if;
  if v_has_priorities then
    perform pgwake.set_policy_priorities(array(
      select i.id from inserted as i where i.priority = 0 and i.status in ('pending', 'waiting')));
  end if;

  if v_has_periods then
    perform pgwake.take_unique_periods(
      array_agg(i.id), array_agg(i.kind), array_agg(i.unique_key::text), array_agg(i.unique_until))
    from inserted as i
    where i.unique_until is not null and i.finished_at is null
    having count(*) > 0;
  end if;

  if v_queue = v_last_queue and v_other_rows = 0 then
    insert into pgwake.counts (queue, at, enqueued, live_rows)
    values (v_queue, pgwake.now(), v_rows, v_rows);
    if v_may_wake or pgwake.is_notify_lock_held(v_queue) then
      perform pgwake.wake(v_queue);
    end if;
  else
    for v_queue, v_waiting_rows in
      insert into pgwake.counts
        (queue, at, enqueued, live_rows, waiting_rows, running_rows, failed_rows, completed_rows, cancelled_rows,
         finished_slot)
      select i.queue, pgwake.now(), count(*),
        nullif(count(*) filter (where i.finished_at is null), 0),
        nullif(count(*) filter (where i.status = 'waiting'), 0),
        nullif(count(*) filter (where i.status = 'running'), 0),
        nullif(count(*) filter (where i.status = 'failed'), 0),
        nullif(count(*) filter (where i.status = 'completed'), 0),
        nullif(count(*) filter (where i.status = 'cancelled'), 0), i.finished_slot
      from inserted as i
      group by i.queue, i.finished_slot
      returning queue, waiting_rows
    loop
      if v_waiting_rows > 0 then
        insert into pgwake.rechecks (queue, at, key)
        select v_queue, min(i.run_at), i.concurrency_key
        from inserted as i
        where i.queue = v_queue and i.status = 'waiting' and i.concurrency_key is not null
          and i.has_parents_left is null
        group by i.concurrency_key;
      end if;
      perform pgwake.wake(v_queue);
    end loop;
    select array_agg(i.id) into v_ids from inserted as i
    where i.has_parents_left and i.depends_on is not null;
    if v_ids is not null then
      perform pgwake.flag_new_children(v_ids);
    end if;
  end if;

  if v_may_announce or pgwake.is_watched() then
    v_audience := pgwake.get_audience();
    perform pgwake.announce(array_agg(pgwake.status_event(i.id, i.queue, i.kind, null, i.status)))
    from inserted as i
    where pgwake.is_announced(i.queue, v_audience);
  end if;
  return null;
end
$$;

comment on function pgwake.after_insert_jobs is
  'Internal: checks, counts, wakes and announces after an INSERT into pgwake.jobs.';
revoke all on function pgwake.after_insert_jobs from public;

-- Counts what people's own statements on pgwake.jobs take away (-1) or bring (1), flags
-- the keys of live jobs and the children of jobs that are no longer live, and wakes the
-- queues of jobs that wait. A job that had room in its key and is moved or put off waits
-- again, as in update_jobs. The functions name its leaves, and do so themselves.
create or replace function pgwake.after_change_jobs()
returns trigger
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_sign constant int := tg_argv[0];
  v_parents bigint[];
begin
  insert into pgwake.counts
    (queue, at, live_rows, waiting_rows, running_rows, failed_rows, completed_rows, cancelled_rows,
     finished_slot)
  select c.queue, pgwake.now(),
    v_sign * nullif(count(*) filter (where c.finished_at is null), 0),
    v_sign * nullif(count(*) filter (where c.status = 'waiting'), 0),
    v_sign * nullif(count(*) filter (where c.status = 'running'), 0),
    v_sign * nullif(count(*) filter (where c.status = 'failed'), 0),
    v_sign * nullif(count(*) filter (where c.status = 'completed'), 0),
    v_sign * nullif(count(*) filter (where c.status = 'cancelled'), 0), c.finished_slot
  from changed as c
  group by c.queue, c.finished_slot;
  if v_sign = 1 then
    with back as (
      update pgwake.jobs_live as j
      set status = 'waiting'
      from changed as n
      join replaced as o on o.id = n.id
      where j.id = n.id and n.concurrency_key is not null and n.status = 'pending' and o.status = 'pending'
        and pgwake.status_after_change(
          n.status, n.concurrency_key, n.queue <> o.queue, n.run_at <> o.run_at, n.run_at,
          (select q.keep_order from pgwake.queues as q where q.name = n.queue)) = 'waiting'
      returning j.queue
    )
    insert into pgwake.counts (queue, at, waiting_rows)
    select b.queue, pgwake.now(), count(*) from back as b group by b.queue;
  end if;
  if tg_op = 'DELETE' then
    perform pgwake.take_steps(c.id) from changed as c where c.has_steps and c.finished_at is null;
    delete from pgwake.unique_periods as p
    where p.ctid = any (array(  -- one that is locked is over, and is being taken by a new job
      select u.ctid
      from changed as c
      join pgwake.unique_periods as u on u.kind = c.kind and u.unique_key = c.unique_key and u.job_id = c.id
      for update of u skip locked));
  end if;
  perform pgwake.flag_keys(array_agg(c.queue), array_agg(c.concurrency_key))
  from changed as c
  where c.concurrency_key is not null and c.finished_at is null;
  if v_sign = 1 then
    perform pgwake.wake(q.queue)
    from (select distinct c.queue from changed as c where c.status in ('waiting', 'pending')) as q;
  else
    select array_agg(c.id) into v_parents from changed as c where c.has_children and c.finished_at is null;
    if v_parents is not null then
      perform pgwake.flag_children(array_agg(u.id), j.status is distinct from 'completed')
      from unnest(v_parents) as u(id)
      left join pgwake.jobs as j on j.id = u.id and j.id = any (v_parents)
      where (j.status in ('waiting', 'pending', 'running')) is not true
      group by j.status is distinct from 'completed';
    end if;
  end if;
  return null;
end
$$;

comment on function pgwake.after_change_jobs is
  'Internal: counts, flags and wakes after an UPDATE or DELETE of pgwake.jobs.';
revoke all on function pgwake.after_change_jobs from public;

-- A leaf that was truncated, by retention or by hand, is empty: so are its sums. Its
-- lock has let nobody add to them that we do not see.
create or replace function pgwake.after_truncate_jobs()
returns trigger
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_slot smallint := substring(tg_table_name from '^jobs_finished_([0-9]+)$');
begin
  if v_slot is null then
    insert into pgwake.counts (queue, at, live_rows, waiting_rows, running_rows, failed_rows)
    select s.queue, pgwake.now(), s.live_rows, s.waiting_rows, s.running_rows, s.failed_rows
    from (
      select r.queue,
        case tg_table_name when 'jobs_live' then -sum(r.live_rows) end as live_rows,
        case tg_table_name when 'jobs_live' then -sum(r.waiting_rows) end as waiting_rows,
        case tg_table_name when 'jobs_live' then -sum(r.running_rows) end as running_rows,
        case tg_table_name when 'jobs_failed' then -sum(r.failed_rows) end as failed_rows
      from pgwake.count_rows as r
      group by r.queue
    ) as s
    where s.live_rows <> 0 or s.failed_rows <> 0;
    if tg_table_name = 'jobs_live' then
      delete from pgwake.dependencies;
      delete from pgwake.rechecks as r where r.child_id is not null;
      delete from pgwake.steps;
      delete from pgwake.waits;
      delete from pgwake.unique_periods;
    end if;
  else
    insert into pgwake.counts (queue, at, completed_rows, cancelled_rows, finished_slot)
    select s.queue, pgwake.now(), -sum(s.completed_rows), -sum(s.cancelled_rows), v_slot
    from (
      select l.queue, l.completed_rows, l.cancelled_rows
      from pgwake.count_leaves as l
      where l.finished_slot = v_slot
      union all
      select r.queue, r.completed_rows, r.cancelled_rows
      from pgwake.count_rows as r
      where r.finished_slot = v_slot
    ) as s
    group by s.queue
    having sum(s.completed_rows) <> 0 or sum(s.cancelled_rows) <> 0;
  end if;
  return null;
end
$$;

comment on function pgwake.after_truncate_jobs is
  'Internal: counts after a TRUNCATE of a leaf of pgwake.jobs.';
revoke all on function pgwake.after_truncate_jobs from public;

-- A resumed queue or a changed policy may make jobs runnable. A changed rate starts with
-- full buckets, since what was used is noted as the time that it took at the rate before.
create or replace function pgwake.after_change_queues()
returns trigger
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  lock table pgwake.jobs_live in row exclusive mode;  -- seen by open_writers()
  perform pgwake.wake(coalesce(new.name, old.name));
  if new.key_rate is distinct from old.key_rate then
    delete from pgwake.key_buckets as b
    where b.queue in (new.name, old.name) and not exists (
      select from pgwake.concurrency_limits as l
      where l.queue = b.queue and l.key = b.key and l.rate_limit is not null);
  end if;
  if (new.key_limit, new.key_rate, new.key_burst) is distinct from (old.key_limit, old.key_rate, old.key_burst) then
    perform pgwake.flag_all_keys(coalesce(new.name, old.name));
  end if;
  return null;
end
$$;

comment on function pgwake.after_change_queues is
  'Internal: wakes a queue whose policy has changed.';
revoke all on function pgwake.after_change_queues from public;

create or replace function pgwake.after_change_limits()
returns trigger
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  lock table pgwake.jobs_live in row exclusive mode;  -- seen by open_writers()
  if new.rate_limit is distinct from old.rate_limit then
    delete from pgwake.key_buckets as b
    where (b.queue, b.key) = (new.queue, new.key) or (b.queue, b.key) = (old.queue, old.key);
  end if;
  perform pgwake.flag_keys(array[new.queue, old.queue], array[new.key, old.key]);
  return null;
end
$$;

comment on function pgwake.after_change_limits is
  'Internal: flags a concurrency key whose limit has changed.';
revoke all on function pgwake.after_change_limits from public;

-- Wakes the jobs that wait for an event, at the commit of whoever emits it. The lock comes
-- first: see await_answer.
create or replace function pgwake.after_insert_events()
returns trigger
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  perform pg_advisory_xact_lock_shared(1885828965, pgwake.event_lock_key(new.name));
  perform pgwake.wake_waits(array[new.name], null);
  return null;
end
$$;

comment on function pgwake.after_insert_events is
  'Internal: wakes the jobs that wait for an event.';
revoke all on function pgwake.after_insert_events from public;

-- Under repeatable read the commit may not see who waits by now. That is looked at here:
-- the server reads the text of a WHEN anew in each statement.
create or replace function pgwake.before_insert_events()
returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    new.is_unseen := true;
  end if;
  return new;
end
$$;

comment on function pgwake.before_insert_events is
  'Internal: marks an event whose emitter may not see who waits for it.';
revoke all on function pgwake.before_insert_events from public;

-- Inside a block: "create or replace trigger" would lock out writers on every run of
-- the installer.
do $triggers$
declare
  v_leaf regclass;
begin
  if exists (
    select from pg_trigger as t
    where t.tgrelid = 'pgwake.jobs'::regclass and t.tgname = 'jobs_after_insert'
  ) then
    return;
  end if;

  create trigger jobs_before_insert
    before insert on pgwake.jobs
    for each row when (new.concurrency_key is not null or new.depends_on is not null or new.expires_at is not null)
    execute function pgwake.before_insert_jobs();

  create trigger jobs_after_insert
    after insert on pgwake.jobs
    referencing new table as inserted
    for each statement execute function pgwake.after_insert_jobs();

  create trigger jobs_after_delete
    after delete on pgwake.jobs
    referencing old table as changed
    for each statement execute function pgwake.after_change_jobs('-1');

  create trigger jobs_after_update_from
    after update on pgwake.jobs
    referencing old table as changed
    for each statement execute function pgwake.after_change_jobs('-1');

  create trigger jobs_after_update_to
    after update on pgwake.jobs
    referencing old table as replaced new table as changed
    for each statement execute function pgwake.after_change_jobs('1');

  for v_leaf in select t.relid from pg_partition_tree('pgwake.jobs') as t where t.isleaf loop
    execute format(
      'create trigger jobs_after_truncate after truncate on %s '
      'for each statement execute function pgwake.after_truncate_jobs()', v_leaf);
  end loop;

  create trigger queues_after_change
    after insert or update or delete on pgwake.queues
    for each row execute function pgwake.after_change_queues();

  create trigger limits_after_change
    after insert or update or delete on pgwake.concurrency_limits
    for each row execute function pgwake.after_change_limits();
end
$triggers$;

do $events$
begin
  if exists (
    select from pg_trigger as t
    where t.tgrelid = 'pgwake.events'::regclass and t.tgname = 'events_before_insert'
  ) then
    return;
  end if;

  create trigger events_before_insert
    before insert on pgwake.events
    for each row execute function pgwake.before_insert_events();

  create constraint trigger events_after_insert
    after insert on pgwake.events deferrable initially deferred
    for each row execute function pgwake.after_insert_events();
end
$events$;

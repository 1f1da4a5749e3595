-- Claims up to count due jobs of a queue for a worker: the form that workers use.
--
--   worker    who runs them, 1 to 512 bytes; null: the session's application name and
--             process id
--   lease     how long without extend_leases(), 1 second to 1 day; null: the queue's,
--             else 5 minutes
--   cursor    opaque: what the last claim answered, or null
--   suspects  false: leaves out jobs with two crashes or more, and takes at most one that
--             crashed once, so that a worker never holds many of them together;
--             true: takes only suspects. Run those alone.
--
-- Always one row. jobs: in claim order, which is priority descending, run_at, id; all
-- under one fresh lease_id. next_run_at: if fewer than count were claimed, when the
-- next job is due, or the queue's pause ends; null if there is none. claimed_at: the
-- queue's clock. A paused queue gives nothing.
--
-- Raises PW003. Locks the jobs it takes (and one that had to make room for one that
-- crashed), skips locked ones. Steps through the priorities in use, since one scan over
-- all of them wades through everything that is scheduled for later at a higher one.
-- Rides jobs_claim_idx, jobs_crashed_idx.
create or replace function pgwake.claim_batch(
  queue text,
  count int,
  worker text default null,
  lease interval default null,
  inout cursor jsonb default null,
  suspects boolean default false,
  out jobs pgwake.claimed_job[],
  out next_run_at timestamptz,
  out claimed_at timestamptz
)
returns record
language plpgsql volatile
set search_path = ''
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  v_now timestamptz := pgwake.now();
  v_paused_until timestamptz;
  v_lease interval;
  v_worker text := coalesce(
    claim_batch.worker, format('%s:%s', current_setting('application_name'), pg_backend_pid()));
  v_lease_id uuid := gen_random_uuid();
  v_priority smallint := 32767;
  v_ids bigint[] := '{}';
  v_more bigint[];
  v_id bigint;
  v_next timestamptz;
  v_audience pgwake.audience := pgwake.get_audience();
  v_events text[];
begin
  if claim_batch.queue is null then
    perform pgwake.raise_invalid('queue is null', 'Name the queue to claim from.');
  end if;
  if claim_batch.count is null or claim_batch.count not between 1 and 10000 then
    perform pgwake.raise_invalid(
      format('count is %s', coalesce(claim_batch.count::text, 'null')), 'Use 1 to 10000.');
  end if;
  if octet_length(claim_batch.worker) not between 1 and 512 then
    perform pgwake.raise_invalid(
      format('worker has %s bytes', octet_length(claim_batch.worker)), 'Use a name of 1 to 512 bytes.');
  end if;
  if claim_batch.lease not between interval '1 second' and interval '1 day' then
    perform pgwake.raise_invalid(
      format('lease is %s', claim_batch.lease), 'Use an interval from 1 second to 1 day.');
  end if;

  select q.paused_until, q.lease into v_paused_until, v_lease
  from pgwake.queues as q where q.name = claim_batch.queue;
  v_lease := coalesce(claim_batch.lease, v_lease, interval '5 minutes');
  claimed_at := v_now;
  jobs := '{}';
  if v_paused_until > v_now then
    next_run_at := nullif(v_paused_until, 'infinity');
    return;
  end if;

  if claim_batch.suspects then
    v_ids := array(
      select j.id
      from pgwake.jobs_live as j
      where j.queue = claim_batch.queue and j.status = 'pending' and j.crash_count > 0
        and j.crash_count >= 2 and j.run_at <= v_now
      order by j.priority desc, j.run_at, j.id
      limit claim_batch.count
      for update skip locked
    );
  else
    loop
      select j.priority into v_priority
      from pgwake.jobs_live as j
      where j.queue = claim_batch.queue and j.status = 'pending' and j.crash_count = 0
        and j.priority < v_priority
      order by j.priority desc
      limit 1;
      exit when not found;

      select array_agg(due.id) into v_more
      from (
        select j.id
        from pgwake.jobs_live as j
        where j.queue = claim_batch.queue and j.status = 'pending' and j.crash_count = 0
          and j.priority = v_priority and j.run_at <= v_now
        order by j.run_at, j.id
        limit claim_batch.count - cardinality(v_ids)
        for update skip locked
      ) as due;
      v_ids := v_ids || v_more;
      exit when cardinality(v_ids) = claim_batch.count;

      select j.run_at into v_next
      from pgwake.jobs_live as j
      where j.queue = claim_batch.queue and j.status = 'pending' and j.crash_count = 0
        and j.priority = v_priority and j.run_at > v_now
      order by j.run_at
      limit 1;
      next_run_at := least(next_run_at, v_next);
    end loop;

    -- One that crashed once, if there is room or its turn comes before the last of these.
    select j.id into v_id
    from pgwake.jobs_live as j
    where j.queue = claim_batch.queue and j.status = 'pending' and j.crash_count > 0
      and j.crash_count = 1 and j.run_at <= v_now
      and (
        cardinality(v_ids) < claim_batch.count
        or (-j.priority, j.run_at, j.id) < (
          select -l.priority, l.run_at, l.id
          from pgwake.jobs_live as l where l.id = v_ids[claim_batch.count])
      )
    order by j.priority desc, j.run_at, j.id
    limit 1
    for update of j skip locked;
    if found then
      v_ids := v_ids[:claim_batch.count - 1] || v_id;
    end if;
  end if;

  if cardinality(v_ids) > 0 then
    with claimed as (
      update pgwake.jobs_live as j
      set status = 'running', attempt = least(j.attempt, 2147483646) + 1, lease_id = v_lease_id,
        lease_expires_at = v_now + v_lease, claimed_by = v_worker, started_at = v_now
      where j.id = any (v_ids)
      returning j.*
    )
    select
      array_agg(
        row(c.id, c.lease_id, c.queue, c.kind, c.payload, c.attempt, c.max_attempts, c.lease_expires_at,
            c.created_at, c.metadata,
            case when c.run_at <> c.created_at or c.crash_count > 0 then
              jsonb_strip_nulls(jsonb_build_object(
                'run_at', nullif(c.run_at, c.created_at), 'crash_count', nullif(c.crash_count, 0)))
            end)::pgwake.claimed_job
        order by c.priority desc, c.run_at, c.id),
      array_agg(pgwake.status_event(c.id, c.queue, c.kind, 'pending', 'running'))
        filter (where pgwake.is_announced(c.queue, v_audience))
    into jobs, v_events
    from claimed as c;
    perform pgwake.announce(v_events);
  end if;

  -- What crashed and was left: the claimed are gone from the index's snapshot, so a due one is another to come for.
  if cardinality(v_ids) = claim_batch.count then
    next_run_at := null;
  else
    select min(j.run_at) into v_next
    from pgwake.jobs_live as j
    where j.queue = claim_batch.queue and j.status = 'pending' and j.crash_count > 0
      and j.crash_count >= case when claim_batch.suspects then 2 else 1 end
      and j.crash_count <= case when claim_batch.suspects then 2147483647 else 1 end
      and (j.run_at > v_now or cardinality(v_ids) > 0);
    next_run_at := least(next_run_at, v_next);
  end if;
end
$$;

comment on function pgwake.claim_batch is
  'Claims up to count due jobs of a queue; one row: jobs, next_run_at, cursor, '
  'claimed_at.';
revoke all on function pgwake.claim_batch from public;

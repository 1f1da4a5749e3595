-- Claims up to count due jobs of a queue for a worker: the form that workers use.
--
--   worker    who runs them, 1 to 512 bytes; null: the session's application name and
--             process id
--   lease     how long without extend_leases(), 1 second to 1 day; null: the queue's,
--             else 5 minutes
--   cursor    opaque: what the last claim of this queue answered, or null
--   suspects  false: leaves out jobs with two crashes or more, and takes at most one that
--             crashed once, so that a worker never holds many of them together;
--             true: takes only suspects. Run those alone.
--
-- Always one row. jobs: in claim order, which is priority descending, run_at, id; all
-- under one fresh lease_id. claimed_at: the queue's clock. A paused queue gives nothing.
--
-- next_run_at: null if count were claimed. Else the least run_at of what is left, or the
-- end of the queue's pause; null if there is none. Not later than claimed_at: a job is
-- due that this claim could not have, since somebody has it locked (his rollback tells
-- nobody) or it crashed once and has to come alone. Look again soon.
--
-- cursor: null while looks are cheap. An index keeps dead entries until vacuum has been
-- there, and can't lose them under an old snapshot; a look from the head of the queue
-- wades through them. Once that costs more than 500 entries, or twice the count, the
-- cursor remembers where each lane (priority, crashed or not) is alive. A claim with a
-- cursor starts there, and looks from the head only when the last such look was 20 times
-- as long ago as it took, or a minute; its next_run_at is not later than that. Until
-- then it may miss what lies behind: jobs that were committed much later than others of
-- their run_at, or given back. New jobs, and those of other priorities, it finds at
-- once. A cursor can't be wrong for longer than that minute.
--
-- Raises PW003. Locks the jobs it takes (and one that had to make room for one that
-- crashed), skips locked ones. Steps through the lanes in use, since one scan over all
-- priorities wades through everything that is scheduled for later at a higher one.
-- Rides jobs_claim_idx, then jobs_live_pkey.
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
  v_ids bigint[] := '{}';
  v_audience pgwake.audience := pgwake.get_audience();
  v_events text[];

  -- The cursor: places is an object, lane -> [run_at, id] to start behind, perhaps with
  -- [run_at, id] to start behind next; next_at is [next_run_at] where it is slow to find.
  v_slow int := greatest(500, 2 * claim_batch.count);
  v_look_at timestamptz;
  v_places jsonb := '{}';
  v_next_at jsonb;
  v_is_from_head boolean := true;
  v_began_at timestamptz := clock_timestamp();
  v_spent interval;
  v_cost bigint;

  -- The lanes: see jobs_claim_idx.
  v_lane int := case when claim_batch.suspects then 301 else -101 end;
  v_end int := case when claim_batch.suspects then 503 else 302 end;
  v_found int;
  v_gap int;
  v_gap_cost bigint;
  v_is_slow boolean := false;
  v_lanes int[] := '{}';
  v_from_ats timestamptz[] := '{}';
  v_from_ids bigint[] := '{}';

  -- The look at one of them: behind from, up to to.
  v_place jsonb;
  v_here jsonb;
  v_want int;
  v_from timestamptz;
  v_from_id bigint;
  v_to timestamptz := v_now;
  v_to_id bigint := 9223372036854775807;
  v_more bigint[];
  v_due_at timestamptz;
  v_last_at timestamptz;
  v_is_full boolean := false;
  v_has_crashed boolean := false;
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

  if claim_batch.cursor is not null then
    perform pgwake.check_cursor(claim_batch.cursor);
    v_look_at := claim_batch.cursor ->> 'look_at';
    v_places := coalesce(claim_batch.cursor -> 'places', '{}');
    v_next_at := claim_batch.cursor -> 'next_at';
    v_is_from_head := v_look_at is null
      or v_look_at not between v_began_at and v_began_at + interval '1 minute';
  end if;

  loop
    -- To the next lane in use: one that the cursor knows, or one in the gap before it.
    v_gap := v_lane;
    v_lane := v_end;
    if v_places <> '{}' then
      select least(v_end, min(p.lane::int)) into v_lane
      from jsonb_object_keys(v_places) as p(lane) where p.lane::int > v_gap;
    end if;
    v_gap_cost := pgwake.claim_cost();
    select least(j.crash_count, 2) * 201 - j.priority into v_found
    from pgwake.jobs_live as j
    where j.queue = claim_batch.queue and j.status = 'pending'
      and least(j.crash_count, 2) * 201 - j.priority > v_gap
      and least(j.crash_count, 2) * 201 - j.priority < v_lane
    order by least(j.crash_count, 2) * 201 - j.priority
    limit 1;
    v_gap_cost := pgwake.claim_cost() - v_gap_cost;
    v_lane := coalesce(v_found, v_lane);
    if v_gap_cost > v_slow then
      -- Their own lanes, or those of the lane that was found, which this look makes known.
      if claim_batch.cursor is null then
        v_is_slow := true;
      else
        v_places := v_places || pgwake.dead_lanes(claim_batch.queue, v_gap, v_lane);
      end if;
    end if;
    exit when v_lane >= v_end;

    v_place := v_places -> v_lane::text;
    v_from := '-infinity';
    v_from_id := 0;
    if not v_is_from_head and v_place is not null then
      v_from := coalesce(v_place ->> 0, '-infinity');
      v_from_id := coalesce(v_place ->> 1, '0');
    end if;
    v_lanes := v_lanes || v_lane;
    v_from_ats := v_from_ats || v_from;
    v_from_ids := v_from_ids || v_from_id;

    v_want := claim_batch.count - cardinality(v_ids);
    v_to := v_now;
    v_to_id := 9223372036854775807;
    if v_lane > 100 and not claim_batch.suspects then
      v_want := case when v_has_crashed then 0 else 1 end;
      if v_is_full and v_lane = v_end - 1 then
        v_to := v_last_at;
        v_to_id := v_ids[claim_batch.count];
      end if;
    end if;
    continue when v_want = 0;

    v_cost := pgwake.claim_cost();
    select array_agg(due.id), max(due.run_at) into v_more, v_due_at
    from (
      select j.id, j.run_at
      from pgwake.jobs_live as j
      where j.queue = claim_batch.queue and j.status = 'pending'
        and least(j.crash_count, 2) * 201 - j.priority = v_lane
        and (j.run_at, j.id) > (v_from, v_from_id) and (j.run_at, j.id) <= (v_to, v_to_id)
      order by j.run_at, j.id
      limit v_want
      for update skip locked
    ) as due;
    v_cost := pgwake.claim_cost() - v_cost - coalesce(cardinality(v_more), 0);

    if v_place is not null or v_cost > v_slow or v_gap_cost > v_slow then
      v_here := case
        when v_more is not null then jsonb_build_array(v_due_at, v_more[cardinality(v_more)])
        when v_from > v_now - interval '1 second' then jsonb_build_array(v_from, v_from_id)
        else jsonb_build_array(v_now - interval '1 second', 0)
      end;
      v_place := case
        when v_place is null then case when v_cost > v_slow then v_here else '["-infinity", 0]' end
        when v_is_from_head then case when v_cost > v_slow then v_place end
        when v_cost > 4 * v_slow then v_here
        when v_cost > v_slow then coalesce(v_place -> 2, v_here)
        when v_cost > v_slow / 2 and jsonb_array_length(v_place) = 2 then v_place || jsonb_build_array(v_here)
        else v_place
      end;
      v_places := case
        when v_place is null then v_places - v_lane::text
        else v_places || jsonb_build_object(v_lane, v_place)
      end;
    end if;

    continue when v_more is null;
    if v_lane > 100 and not claim_batch.suspects then
      v_has_crashed := true;
      v_ids := v_ids[:claim_batch.count - 1] || v_more;
      exit when cardinality(v_ids) = claim_batch.count;
    else
      v_ids := v_ids || v_more;
      if cardinality(v_ids) = claim_batch.count then
        exit when claim_batch.suspects;
        -- One that crashed once comes in its turn: if it is before the last of these.
        v_is_full := true;
        v_last_at := v_due_at;
        v_end := v_lane + 202;
        v_lane := 100;
      end if;
    end if;
  end loop;
  v_spent := clock_timestamp() - v_began_at;

  if cardinality(v_ids) > 0 then
    with claimed as (
      update pgwake.jobs_live as j
      set status = 'running', attempt = least(j.attempt, 2147483646) + 1, lease_id = v_lease_id,
        lease_expires_at = v_now + v_lease, claimed_by = v_worker, started_at = v_now
      where j.id = any (v_ids)
      returning j.id, j.queue, j.kind, j.priority, j.run_at,
        row(j.id, j.lease_id, j.queue, j.kind, j.payload, j.attempt, j.max_attempts, j.lease_expires_at,
            j.created_at, j.metadata,
            case when j.run_at <> j.created_at or j.crash_count > 0 then
              jsonb_strip_nulls(jsonb_build_object(
                'run_at', nullif(j.run_at, j.created_at), 'crash_count', nullif(j.crash_count, 0)))
            end)::pgwake.claimed_job as job
    )
    select
      array_agg(c.job order by c.priority desc, c.run_at, c.id),
      array_agg(pgwake.status_event(c.id, c.queue, c.kind, 'pending', 'running'))
        filter (where pgwake.is_announced(c.queue, v_audience))
    into jobs, v_events
    from claimed as c;
    insert into pgwake.tallies (queue, at, running_rows)
    values (claim_batch.queue, v_now, cardinality(jobs));
    perform pgwake.announce(v_events);
  end if;

  -- What is left: the claimed are gone from the index, as this statement sees it.
  if cardinality(v_ids) < claim_batch.count then
    if v_is_from_head or v_next_at is null then
      v_began_at := clock_timestamp();
      v_cost := pgwake.claim_cost();
      select min(left_at.run_at) into next_run_at
      from unnest(v_lanes, v_from_ats, v_from_ids) as v(lane, from_at, from_id)
      cross join lateral (
        select j.run_at
        from pgwake.jobs_live as j
        where j.queue = claim_batch.queue and j.status = 'pending'
          and least(j.crash_count, 2) * 201 - j.priority = v.lane
          and (j.run_at, j.id) > (v.from_at, v.from_id)
        order by j.run_at, j.id
        limit 1
      ) as left_at;
      v_cost := pgwake.claim_cost() - v_cost - cardinality(v_ids);
      v_spent := v_spent + (clock_timestamp() - v_began_at);
      v_next_at := null;
      if v_cost > v_slow + 50 * cardinality(v_lanes) and (v_places = '{}' or not v_is_from_head) then
        v_next_at := jsonb_build_array(next_run_at);
      end if;
    else
      next_run_at := v_next_at ->> 0;
    end if;
  end if;

  if v_is_from_head then
    v_look_at := clock_timestamp() + least(20 * v_spent, interval '1 minute');
  elsif cardinality(v_ids) < claim_batch.count then
    next_run_at := least(next_run_at, v_look_at + (v_now - now()));
  end if;
  claim_batch.cursor := case
    when v_is_slow or v_places <> '{}' or v_next_at is not null then
      jsonb_strip_nulls(jsonb_build_object('look_at', v_look_at, 'places', v_places, 'next_at', v_next_at))
  end;
end
$$;

comment on function pgwake.claim_batch is
  'Claims up to count due jobs of a queue; one row: jobs, next_run_at, cursor, '
  'claimed_at.';
revoke all on function pgwake.claim_batch from public;

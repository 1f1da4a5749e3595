-- Claims up to count due jobs of a queue for a worker: the form that workers use.
--
--   worker    who runs them, 1 to 512 bytes; null: the session's application name and
--             process id
--   lease     how long without extend_leases(), 1 second to 1 day; null: by policy: the
--             kind's as an operator set it, as a worker declared it, the queue's, else 5
--             minutes
--   cursor    opaque: what the last claim of this queue answered, or null
--   suspects  false: leaves out jobs with two crashes or more, and takes at most one that
--             crashed once, so that a worker never holds many of them together;
--             true: takes only suspects. Run those alone.
--
-- Always one row. jobs: in claim order, which is priority descending, run_at, id; all
-- under one fresh lease_id. claimed_at: the queue's clock. A paused queue gives nothing.
-- is_limited: it has max_running or a rate limit, so claim no more than can be run now;
-- see admit_claim. Jobs whose parents have ended are admitted first, and those with a
-- concurrency key that has room: admit_children, admit_keyed_jobs.
--
-- next_run_at: null if count were claimed. Else the least run_at of what is left, or the
-- end of the queue's pause, or the time of the next token of its rate; null if there is
-- none, or nothing runs until a job ends. Not later than claimed_at: a job is due that
-- this claim could not have, since somebody has it, its key or its queue locked (his
-- rollback tells nobody) or it crashed once and has to come alone. Look again soon.
--
-- cursor: null while looks are cheap. An index keeps dead entries until vacuum has been
-- there, and can't lose them under an old snapshot; a look from the head of the queue
-- wades through them. Once that costs more than 500 entries, or twice the count, the
-- cursor remembers where each priority band (priority, crashed or not) is alive. A
-- claim with a cursor starts there, and looks from the head only when the last such
-- look was 20 times as long ago as it took, or a minute; its next_run_at is not later
-- than that. Until then it may miss what lies behind: jobs that were committed much
-- later than others of their run_at, or given back. New jobs, and those of other
-- priorities, it finds at once. A cursor can't be wrong for longer than that minute.
-- Rechecks are read by a cursor too.
--
-- Raises PW003, and PW006 in a copy of the database: see adopt. Locks the jobs it takes
-- (and one that had to make room for one that crashed), skips locked ones. Steps through
-- the bands in use, since one scan over all priorities wades through everything that is
-- scheduled for later at a higher one. Rides jobs_claim_idx, then jobs_live_pkey; for the
-- policy queues_pkey, kinds_claim_idx and rechecks_due_idx.
create or replace function pgwake.claim_batch(
  queue text,
  count int,
  worker text default null,
  lease interval default null,
  inout cursor jsonb default null,
  suspects boolean default false,
  out jobs pgwake.claimed_job[],
  out next_run_at timestamptz,
  out claimed_at timestamptz,
  out is_limited boolean
)
returns record
language plpgsql volatile
security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  v_now timestamptz := pgwake.now();
  v_policy record;
  v_has_timeouts boolean;
  v_count int := claim_batch.count;
  v_tokens double precision;
  v_again_at timestamptz;
  v_worker text := coalesce(
    claim_batch.worker, format('%s:%s', current_setting('application_name'), pg_backend_pid()));
  v_lease_id uuid;
  v_leased_at timestamptz;
  v_ids bigint[] := '{}';
  v_audience pgwake.audience;
  v_events text[];

  -- The cursor: resume_points is an object, band -> [run_at, id] to start behind, perhaps with
  -- [run_at, id] to start behind next; next_at is [next_run_at] where it is slow to find.
  v_slow int := 2 * least(greatest(250, claim_batch.count), 10000);
  v_head_at timestamptz;
  v_resume_points jsonb := '{}';
  v_next_at jsonb;
  v_keys jsonb;  -- of the rechecks: [at] to start at, [clock] to read from the head again
  v_keys_from timestamptz := '-infinity';
  v_is_from_head boolean := true;
  v_began_at timestamptz := clock_timestamp();
  v_spent interval;
  v_cost bigint;

  -- The priority bands: see jobs_claim_idx.
  v_band int := case when claim_batch.suspects then 301 else -101 end;
  v_end int := case when claim_batch.suspects then 503 else 302 end;
  v_found int;
  v_gap int;
  v_gap_cost bigint;
  v_is_slow boolean := false;
  v_bands int[] := '{}';
  v_from_ats timestamptz[] := '{}';
  v_from_ids bigint[] := '{}';

  -- The look at one of them: behind from, up to to.
  v_resume_point jsonb;
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
  if (claim_batch.queue is not null and claim_batch.count between 1 and 10000
      and (octet_length(claim_batch.worker) between 1 and 512) is not false
      and (claim_batch.lease between interval '1 second' and interval '1 day') is not false) is not true
  then
    perform pgwake.refuse_claim(claim_batch.queue, claim_batch.count, claim_batch.worker, claim_batch.lease);
  end if;
  if current_setting('pgwake.adopted', true) is distinct from pg_backend_pid()::text then
    perform pgwake.check_adopted();  -- once a session
  end if;
  if claim_batch.cursor is not null then
    perform pgwake.check_cursor(claim_batch.cursor);
    v_head_at := claim_batch.cursor ->> 'head_at';
    v_resume_points := coalesce(claim_batch.cursor -> 'resume_points', '{}');
    v_next_at := claim_batch.cursor -> 'next_at';
    v_is_from_head := v_head_at is null
      or v_head_at not between v_began_at and v_began_at + interval '1 minute';
    v_keys := claim_batch.cursor -> 'keys';
    if (v_keys ->> 1)::timestamptz between v_began_at and v_began_at + interval '1 minute' then
      v_keys_from := coalesce(v_keys ->> 0, '-infinity');
    end if;
  end if;

  v_cost := pgwake.rows_read();
  select q.paused_until, coalesce(q.lease, interval '5 minutes') as lease, q.timeout, q.max_running, q.rate_limit,
    q.rate_burst, q.key_limit, kinds.by_name as kinds,
    (
      select r.at
      from pgwake.rechecks as r
      where r.queue = claim_batch.queue and r.at >= v_keys_from
      order by r.at
      limit 1
    ) as recheck_at
  into v_policy
  from (values (claim_batch.queue)) as v(name)
  left join pgwake.queues as q on q.name = v.name
  cross join lateral (
    select jsonb_object_agg(k.name, jsonb_build_array(
      extract(epoch from coalesce(k.lease, k.declared_lease)),
      extract(epoch from coalesce(k.timeout, case when k.declared_timeout is null then q.timeout end))::float8)) as by_name
    from pgwake.kinds as k
    where k.timeout is not null or k.lease is not null or k.declared_lease is not null
  ) as kinds;
  claimed_at := v_now;
  jobs := '{}';
  is_limited := v_policy.max_running is not null or v_policy.rate_limit is not null;
  if v_policy.paused_until > v_now then
    next_run_at := nullif(v_policy.paused_until, 'infinity');
    return;
  end if;

  v_has_timeouts := v_policy.kinds is not null or v_policy.timeout is not null;
  if v_policy.timeout is not null then
    -- A time limit that a kind declares is its worker's to know.
    v_policy.kinds := coalesce((
      select jsonb_object_agg(k.name, '[null, null]'::jsonb)
      from pgwake.kinds as k where k.declared_timeout is not null), '{}') || coalesce(v_policy.kinds, '{}');
  end if;

  if is_limited then
    select a.count, a.at, a.tokens, a.next_at into v_count, v_now, v_tokens, v_again_at
    from pgwake.admit_claim(
      claim_batch.queue, v_count, v_policy.max_running, v_policy.rate_limit, v_policy.rate_burst, v_now) as a;
    claimed_at := v_now;
    if v_count = 0 then
      next_run_at := v_again_at;
      return;
    end if;
  end if;

  if v_policy.recheck_at <= v_now and not claim_batch.suspects then
    v_audience := pgwake.get_audience();
    select c.recheck_at into v_policy.recheck_at
    from pgwake.admit_children(
      claim_batch.queue, v_now, v_keys_from, greatest(100, 10 * v_count), v_audience) as c;
    v_policy.recheck_at := least(v_policy.recheck_at, pgwake.admit_keyed_jobs(
      claim_batch.queue, v_count, v_policy.key_limit, v_now, v_keys_from, v_audience));
    v_now := greatest(v_now, clock_timestamp() + (pgwake.now() - now()));
    claimed_at := v_now;
  end if;
  v_cost := pgwake.rows_read() - v_cost;
  if v_keys is not null or v_cost > v_slow then
    v_keys := case
      when v_cost > v_slow or isfinite(v_keys_from) then jsonb_build_array(
        least(v_now - interval '1 second', v_policy.recheck_at),
        case when isfinite(v_keys_from) then (v_keys ->> 1)::timestamptz
          else clock_timestamp() + least(20 * (clock_timestamp() - v_began_at), interval '1 minute')
        end)
    end;
  end if;
  v_began_at := clock_timestamp();

  loop
    -- To the next band in use: one that the cursor knows, or one in the gap before it.
    v_gap := v_band;
    v_band := v_end;
    if v_resume_points <> '{}' then
      select least(v_end, min(p.band::int)) into v_band
      from jsonb_object_keys(v_resume_points) as p(band) where p.band::int > v_gap;
    end if;
    v_gap_cost := pgwake.claim_cost();
    select least(j.crash_count, 2) * 201 - j.priority into v_found
    from pgwake.jobs_live as j
    where j.queue = claim_batch.queue and j.status = 'pending'
      and least(j.crash_count, 2) * 201 - j.priority > v_gap
      and least(j.crash_count, 2) * 201 - j.priority < v_band
    order by least(j.crash_count, 2) * 201 - j.priority
    limit 1;
    v_gap_cost := pgwake.claim_cost() - v_gap_cost;
    v_band := coalesce(v_found, v_band);
    if v_gap_cost > v_slow then
      -- Their own bands, or those of the band that was found, which this look makes known.
      if claim_batch.cursor is null then
        v_is_slow := true;
      else
        v_resume_points := v_resume_points || pgwake.dead_bands(claim_batch.queue, v_gap, v_band);
      end if;
    end if;
    exit when v_band >= v_end;

    v_resume_point := v_resume_points -> v_band::text;
    v_from := '-infinity';
    v_from_id := 0;
    if not v_is_from_head and v_resume_point is not null then
      v_from := coalesce(v_resume_point ->> 0, '-infinity');
      v_from_id := coalesce(v_resume_point ->> 1, '0');
    end if;
    v_bands := v_bands || v_band;
    v_from_ats := v_from_ats || v_from;
    v_from_ids := v_from_ids || v_from_id;

    v_want := v_count - cardinality(v_ids);
    v_to := v_now;
    v_to_id := 9223372036854775807;
    if v_band > 100 and not claim_batch.suspects then
      v_want := case when v_has_crashed then 0 else 1 end;
      if v_is_full and v_band = v_end - 1 then
        v_to := v_last_at;
        v_to_id := v_ids[v_count];
      end if;
    end if;
    continue when v_want = 0;

    v_cost := pgwake.claim_cost();
    select array_agg(due.id), max(due.run_at) into v_more, v_due_at
    from (
      select j.id, j.run_at
      from pgwake.jobs_live as j
      where j.queue = claim_batch.queue and j.status = 'pending'
        and least(j.crash_count, 2) * 201 - j.priority = v_band
        and (j.run_at, j.id) > (v_from, v_from_id) and (j.run_at, j.id) <= (v_to, v_to_id)
      order by j.run_at, j.id
      limit v_want
      for update skip locked
    ) as due;
    v_cost := pgwake.claim_cost() - v_cost - coalesce(cardinality(v_more), 0);

    if v_resume_point is not null or v_cost > v_slow or v_gap_cost > v_slow then
      v_resume_point := pgwake.next_resume_point(v_resume_point, case
        when v_more is not null then jsonb_build_array(v_due_at, v_more[cardinality(v_more)])
        when v_from > v_now - interval '1 second' then jsonb_build_array(v_from, v_from_id)
        else jsonb_build_array(v_now - interval '1 second', 0)
      end, v_is_from_head, v_cost, v_slow);
      v_resume_points := case
        when v_resume_point is null then v_resume_points - v_band::text
        else v_resume_points || jsonb_build_object(v_band, v_resume_point)
      end;
    end if;

    continue when v_more is null;
    if v_band > 100 and not claim_batch.suspects then
      v_has_crashed := true;
      v_ids := v_ids[:v_count - 1] || v_more;
      exit when cardinality(v_ids) = v_count;
    else
      v_ids := v_ids || v_more;
      if cardinality(v_ids) = v_count then
        exit when claim_batch.suspects;
        -- One that crashed once comes in its turn: if it is before the last of these.
        v_is_full := true;
        v_last_at := v_due_at;
        v_end := v_band + 202;
        v_band := 100;
      end if;
    end if;
  end loop;
  v_spent := clock_timestamp() - v_began_at;

  if cardinality(v_ids) > 0 then
    v_lease_id := gen_random_uuid();
    v_leased_at := greatest(v_now, pgwake.called_at());
    v_audience := pgwake.get_audience();
    with claimed as (
      update pgwake.jobs_live as j
      set status = 'running', attempt = least(j.attempt, 2147483646) + 1, lease_id = v_lease_id,
        lease_expires_at = v_leased_at + coalesce(
          claim_batch.lease, interval '1 second' * (v_policy.kinds -> j.kind ->> 0)::float8, v_policy.lease),
        claimed_by = v_worker, started_at = v_now
      where j.id = any (v_ids)
      returning j.id, j.queue, j.kind, j.priority, j.run_at,
        row(j.id, j.lease_id, j.queue, j.kind, j.payload, j.attempt, j.max_attempts, j.lease_expires_at,
            j.created_at, j.metadata,
            case when j.run_at <> j.created_at or j.crash_count > 0 or v_has_timeouts then
              nullif(jsonb_strip_nulls(jsonb_build_object(
                'run_at', nullif(j.run_at, j.created_at), 'crash_count', nullif(j.crash_count, 0),
                'timeout', case when v_policy.kinds ? j.kind then v_policy.kinds -> j.kind -> 1
                  else to_jsonb(extract(epoch from v_policy.timeout)::float8) end)), '{}')
            end)::pgwake.claimed_job as job
    )
    select
      array_agg(c.job order by c.priority desc, c.run_at, c.id),
      array_agg(pgwake.status_event(c.id, c.queue, c.kind, 'pending', 'running'))
        filter (where pgwake.is_announced(c.queue, v_audience))
    into jobs, v_events
    from claimed as c;
    insert into pgwake.counts (queue, at, running_rows)
    values (claim_batch.queue, v_now, cardinality(jobs));
    if v_events is not null then
      perform pgwake.announce(v_events);
    end if;
    if v_tokens is not null then
      insert into pgwake.rate_buckets (queue, tokens, filled_at)
      values (claim_batch.queue, v_tokens - cardinality(jobs), v_now)
      on conflict (queue) do update set tokens = excluded.tokens, filled_at = excluded.filled_at;
    end if;
  end if;

  -- What is left: the claimed are gone from the index, as this statement sees it.
  if cardinality(v_ids) < v_count then
    if v_is_from_head or v_next_at is null then
      v_began_at := clock_timestamp();
      v_cost := pgwake.claim_cost();
      select min(left_at.run_at) into next_run_at
      from unnest(v_bands, v_from_ats, v_from_ids) as v(band, from_at, from_id)
      cross join lateral (
        select j.run_at
        from pgwake.jobs_live as j
        where j.queue = claim_batch.queue and j.status = 'pending'
          and least(j.crash_count, 2) * 201 - j.priority = v.band
          and (j.run_at, j.id) > (v.from_at, v.from_id)
        order by j.run_at, j.id
        limit 1
      ) as left_at;
      v_cost := pgwake.claim_cost() - v_cost - cardinality(v_ids);
      v_spent := v_spent + (clock_timestamp() - v_began_at);
      v_next_at := null;
      if v_cost > v_slow + 50 * cardinality(v_bands) and (v_resume_points = '{}' or not v_is_from_head) then
        v_next_at := jsonb_build_array(next_run_at);
      end if;
    else
      next_run_at := v_next_at ->> 0;
    end if;
    if not claim_batch.suspects then
      next_run_at := least(next_run_at, v_policy.recheck_at, case
        when isfinite(v_keys_from) then (v_keys ->> 1)::timestamptz + (pgwake.now() - now()) end);
    end if;
  elsif v_count < claim_batch.count then
    next_run_at := v_again_at;
  end if;

  if v_is_from_head then
    v_head_at := clock_timestamp() + least(20 * v_spent, interval '1 minute');
  elsif cardinality(v_ids) < v_count then
    next_run_at := least(next_run_at, v_head_at + (pgwake.now() - now()));
  end if;
  claim_batch.cursor := case
    when v_is_slow or v_resume_points <> '{}' or v_next_at is not null or v_keys is not null then
      jsonb_strip_nulls(jsonb_build_object(
        'head_at', v_head_at, 'resume_points', v_resume_points, 'next_at', v_next_at, 'keys', v_keys))
  end;
end
$$;

comment on function pgwake.claim_batch is
  'Claims up to count due jobs of a queue; one row: jobs, next_run_at, cursor, '
  'claimed_at, is_limited.';
revoke all on function pgwake.claim_batch from public;

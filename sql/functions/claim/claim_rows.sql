-- Claims up to count due jobs of a queue for a worker: the form that workers use.
--
--   worker         who runs them, 1 to 512 bytes; null: the session's application name
--                  and process id
--   lease          how long without extend_leases(), 1 second to 1 day; null: by policy:
--                  the kind's as an operator set it, as a worker declared it, the
--                  queue's, else 5 minutes
--   cursor         opaque: what the last claim of this queue answered, or null
--   suspects       false: leaves out jobs with two crashes or more, and takes at most one
--                  that crashed once, so that a worker never holds many of them together;
--                  true: takes only suspects, of any kind. Run those alone.
--   unknown_kinds  left out: kinds that the worker has met and can not run, at most
--                  1,000; null: none
--
-- A row a job, in claim order, which is priority descending, run_at, id; all under one
-- fresh lease_id; columns as those of claimed_job. Then one row more, whose id is null and
-- which alone has the last five columns. They speak of the whole claim:
--
--   claimed_at   the queue's clock. A paused queue gives nothing.
--   is_limited   max_running or a rate, of the queue or of a kind, leaves room for less
--                than twice the count, so claim no more than can be run now; see
--                limit_claim and limit_kinds
--   next_run_at  null if count were claimed. Else the least run_at of what is left, or
--                the end of the queue's pause, or the time of the next token of its rate
--                or of a kind's; null if there is none, or nothing runs until a job ends.
--                Not later than claimed_at: a job is due that this claim could not have,
--                since somebody has it, its key, its kind or its queue locked (his
--                rollback tells nobody) or it crashed once and has to come alone, or a
--                kind's limit has cut this claim short of others. Look again soon. Of
--                unknown_kinds, and kinds without room, only what is still to come counts.
--   left_out_id  if less than count was claimed, the job of unknown_kinds that has become
--                due last, within ten seconds; null if there is none. While it changes,
--                others who know the kind may have to be woken: leave the duty to them
--                for a moment.
--   next_cursor  for the next claim. Null while looks are cheap. An index keeps dead
--                entries until vacuum has been there, and can't lose them under an old
--                snapshot; a look from the head of the queue wades through them. Once
--                that costs more than 500 entries, or twice the count, the cursor
--                remembers where each priority band (priority, crashed or not) is alive.
--                A claim with a cursor starts there, and looks from the head only when
--                the last such look was 20 times as long ago as it took, or a minute; its
--                next_run_at is not later than that. Until then it may miss what lies
--                behind: jobs that were committed much later than others of their run_at,
--                or given back. New jobs, and those of other priorities, it finds at
--                once. A cursor can't be wrong for longer than that minute. Rechecks are
--                read by a cursor too, and jobs of unknown_kinds, and those that have
--                expired, stepped over like dead entries. It remembers limited kinds that
--                were met, too, and for each set of those that had no room a cursor of its
--                own, up to eight.
--
-- Limits of kinds: what was locked goes through limit_kinds, if any kind has a limit. What
-- may not start is left; if that is all, the claim begins anew without these kinds. The
-- next claim asks for the room of the kinds that this one met before it looks: it leaves
-- out those without, and takes no more jobs than the least room of the others. A claim
-- that is short of jobs notes that the queue is to be woken by ends of these kinds.
--
-- Jobs whose parents have ended are admitted first, and those with a concurrency key that
-- has room: admit_children, admit_keys. Raises PW003, and PW006 in a copy of the
-- database: see adopt. Locks the jobs it takes (and one that had to make room for one
-- that crashed), skips locked ones.
--
-- The first statement reads the policy and, where the claim is plain, locks the jobs too.
-- What is not plain goes through the parts: limit_claim, admit_due_jobs, lock_due_jobs.
-- Both start the jobs and look at what is left alike. lock_due_jobs has its settings from
-- here, since to set them again costs 10% of a claim of one job. Rides jobs_claim_idx,
-- jobs_live_pkey, queues_pkey, kinds_claim_idx, concurrency_limits_rate_idx,
-- rechecks_due_idx, and what kind_rooms does.
create or replace function pgwake.claim_rows(
  queue text,
  count int,
  worker text default null,
  lease interval default null,
  cursor jsonb default null,
  suspects boolean default false,
  unknown_kinds text[] default null
)
returns table (
  id bigint, lease_id uuid, kind text, payload jsonb, attempt int, max_attempts int, lease_expires_at timestamptz,
  created_at timestamptz, metadata jsonb, options jsonb,
  claimed_at timestamptz, is_limited boolean, next_run_at timestamptz, left_out_id bigint, next_cursor jsonb
)
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
  v_ahead interval := pgwake.now() - now();  -- what the queue's clock is ahead of now()
  -- The statement that ends jobs before it claims has it so: later than what they have admitted.
  v_now timestamptz := case current_setting('pgwake.claims_by_clock', true)
    when 'on' then clock_timestamp() + v_ahead else pgwake.now() end;
  v_policy record;
  v_admitted record;
  v_ids bigint[];
  v_bands int[];  -- that were looked at, if fewer than count are due, and where: null from the head
  v_from_ats timestamptz[];
  v_from_ids bigint[];
  v_is_slow boolean := false;
  v_count int := claim_rows.count;
  v_tokens double precision;
  v_again_at timestamptz;
  v_kinds jsonb;  -- kind -> [lease, timeout] in seconds, null where policy has none
  v_limited record;  -- what limit_kinds has answered
  v_full text[] := '{}';  -- limited kinds that are left out, when there is a token, and the least room of others
  v_full_at timestamptz;
  v_room int;
  v_left_out text[] := claim_rows.unknown_kinds;
  v_lease_id uuid;
  v_began_at timestamptz := clock_timestamp();
  v_spent interval;
  v_keys_cost bigint := pgwake.rows_read();
  v_cost bigint := pgwake.claim_cost();

  -- The cursor: resume_points are lock_due_jobs'; next_at is [next_run_at] where it is slow to find.
  v_slow int := 2 * least(greatest(250, claim_rows.count), 10000);
  v_head_at timestamptz;
  v_resume_points jsonb := '{}';
  v_next_at jsonb;
  v_cursor jsonb;  -- the one for the kinds that are full
  v_points jsonb;  -- the resume points before the look
  v_keys jsonb;  -- of the rechecks: [at] to start at, [clock] to read from the head again
  v_keys_from timestamptz := '-infinity';
  v_is_from_head boolean := true;
begin
  if (claim_rows.queue is not null and claim_rows.count between 1 and 10000
      and (octet_length(claim_rows.worker) between 1 and 512) is not false
      and (claim_rows.lease between interval '1 second' and interval '1 day') is not false) is not true
  then
    perform pgwake.check_claim_arguments(claim_rows.queue, claim_rows.count, claim_rows.worker, claim_rows.lease);
  end if;
  if cardinality(claim_rows.unknown_kinds) > 1000 or array_position(claim_rows.unknown_kinds, null) is not null then
    perform pgwake.raise_invalid(
      'unknown_kinds has a null in it, or more than 1000 kinds', 'Pass up to 1000 kinds to leave out.');
  end if;
  if current_setting('pgwake.adopted', true) is distinct from pg_backend_pid()::text then
    perform pgwake.check_adopted();  -- once a session
  end if;
  if claim_rows.cursor is not null then
    perform pgwake.check_cursor(claim_rows.cursor);
    if jsonb_typeof(claim_rows.cursor) <> 'object' then
      claim_rows.cursor := '{}';
    end if;
    if claim_rows.cursor ? 'kinds' then
      select coalesce(array_agg(r.kind order by r.kind) filter (where r.room = 0 or r.is_cut), '{}'),
        min(case when r.room > 0 then v_now else r.next_at end) filter (where r.room = 0 or r.is_cut),
        min(r.room) filter (where r.room > 0 and not r.is_cut)
      into v_full, v_full_at, v_room
      from (
        select k.*, coalesce(claim_rows.cursor -> 'cut' ? k.kind, false) as is_cut
        from pgwake.kind_rooms(array(select jsonb_array_elements_text(claim_rows.cursor -> 'kinds')), v_now) as k
      ) as r;
      v_left_out := nullif(v_left_out || v_full, '{}');
    end if;
    v_cursor := case when v_full = '{}' then claim_rows.cursor else claim_rows.cursor -> 'full' -> v_full::text end;
    v_head_at := v_cursor ->> 'head_at';
    v_resume_points := coalesce(v_cursor -> 'resume_points', '{}');
    v_next_at := v_cursor -> 'next_at';
    v_is_from_head := v_head_at is null
      or v_head_at not between v_began_at and v_began_at + interval '1 minute';
    v_keys := claim_rows.cursor -> 'keys';
    if (v_keys ->> 1)::timestamptz between v_began_at and v_began_at + interval '1 minute' then
      v_keys_from := coalesce(v_keys ->> 0, '-infinity');
    end if;
  end if;

  -- The bands of what never crashed, each found when the one before has not been enough.
  with bands as materialized (
    select b.band from pgwake.live_bands(claim_rows.queue, 101) as b(band)
  )
  select l.*, case when cardinality(l.ids) < v_count then array(
    select b.band from bands as b) end as bands
  into v_policy
  from (
    select p.*, case when p.is_plain then array(
      select due.id
      from bands as b
      cross join lateral (
        select j.id
        from pgwake.jobs_live as j
        where j.queue = claim_rows.queue and j.status = 'pending'
          and least(j.crash_count, 2) * 201 - j.priority = b.band and j.run_at <= v_now
          and ((j.expires_at > v_now) is not false or j.attempt > 0)
        order by j.run_at, j.id
        limit v_count
        for update skip locked
      ) as due
      limit v_count) end as ids
    from (
      select r.*,
        claim_rows.cursor is null and not claim_rows.suspects and claim_rows.unknown_kinds is null
          and (r.paused_until > v_now) is not true and (r.recheck_at <= v_now) is not true
          and r.max_running is null and r.rate_limit is null
          and not exists (
            select from pgwake.jobs_live as j
            where j.queue = claim_rows.queue and j.status = 'pending'
              and least(j.crash_count, 2) * 201 - j.priority > 100
              and least(j.crash_count, 2) * 201 - j.priority < 302) as is_plain
      from (
        select q.paused_until, coalesce(q.lease, interval '5 minutes') as lease, q.timeout, q.max_running, q.rate_limit,
          q.rate_burst, q.key_limit, q.key_rate, q.key_burst,
          (  -- null: no kind has any of these; else whether one has a limit
            select bool_or(k.max_running is not null or k.rate_limit is not null)
            from pgwake.kinds as k
            where k.timeout is not null or k.lease is not null or k.declared_lease is not null
              or k.max_running is not null or k.rate_limit is not null) as has_kind_limits,
          (
            select r.at
            from pgwake.rechecks as r
            where r.queue = claim_rows.queue and r.at >= v_keys_from
            order by r.at
            limit 1
          ) as recheck_at,
          q.key_rate is not null or exists (
            select from pgwake.concurrency_limits as c
            where c.queue = v.name and c.rate_limit is not null) as has_key_rates,
          pgwake.is_watched() or exists (
            select from pgwake.queues as e where e.status_events <> 'watched') as has_audience
        from (values (claim_rows.queue)) as v(name)
        left join pgwake.queues as q on q.name = v.name
        offset 0
      ) as r
      offset 0
    ) as p
    offset 0
  ) as l;
  claimed_at := v_now;
  is_limited := v_policy.max_running is not null or v_policy.rate_limit is not null;
  if v_policy.has_kind_limits is not null then
    select jsonb_object_agg(k.name, jsonb_build_array(
      extract(epoch from coalesce(k.lease, k.declared_lease)),
      extract(epoch from coalesce(k.timeout, case when k.declared_timeout is null then v_policy.timeout end))::float8))
    into v_kinds
    from pgwake.kinds as k
    where k.timeout is not null or k.lease is not null or k.declared_lease is not null;
  end if;
  if v_policy.timeout is not null then
    -- A time limit that a kind declares is its worker's to know.
    v_kinds := coalesce((
      select jsonb_object_agg(k.name, '[null, null]'::jsonb)
      from pgwake.kinds as k where k.declared_timeout is not null), '{}') || coalesce(v_kinds, '{}');
  end if;

  -- A plain look that was slow is taken again the long way, which makes a cursor.
  if v_policy.is_plain and pgwake.claim_cost() - v_cost - cardinality(v_policy.ids) <= 2 * v_slow
    and pgwake.rows_read() - v_keys_cost <= v_slow
  then
    v_ids := v_policy.ids;
    v_bands := v_policy.bands;
  else
    if v_policy.paused_until > v_now then
      next_run_at := nullif(v_policy.paused_until, 'infinity');
      next_cursor := claim_rows.cursor - 'cut';
      return next;
      return;
    end if;

    if is_limited then
      select least(a.count, v_count), a.at, a.tokens, a.next_at, a.count < 2 * v_count
      into v_count, v_now, v_tokens, v_again_at, is_limited
      from pgwake.limit_claim(
        claim_rows.queue, 2 * v_count, v_policy.max_running, v_policy.rate_limit, v_policy.rate_burst,
        pgwake.now()) as a;
      claimed_at := v_now;
      if v_count = 0 then
        next_run_at := v_again_at;
        next_cursor := claim_rows.cursor - 'cut';
        return next;
        return;
      end if;
    end if;
    if v_room < v_count then
      v_count := v_room;
      v_again_at := v_now;
      is_limited := true;
    end if;

    if v_policy.recheck_at <= v_now and not claim_rows.suspects then
      v_admitted := pgwake.admit_due_jobs(
        claim_rows.queue, v_count, v_policy.key_limit, v_policy.key_rate, v_policy.key_burst, v_now, v_keys_from,
        v_resume_points);
      v_policy.recheck_at := v_admitted.recheck_at;
      v_now := v_admitted.at;
      claimed_at := v_now;
    end if;
    v_keys_cost := pgwake.rows_read() - v_keys_cost;
    if v_keys is not null or v_keys_cost > v_slow then
      v_keys := case
        when v_keys_cost > v_slow or isfinite(v_keys_from) then jsonb_build_array(
          least(v_now - interval '1 second', v_policy.recheck_at),
          case when isfinite(v_keys_from) then (v_keys ->> 1)::timestamptz
            else clock_timestamp() + least(20 * (clock_timestamp() - v_began_at), interval '1 minute')
          end)
      end;
    end if;
    v_began_at := clock_timestamp();
    v_points := v_resume_points;

    select l.ids, l.bands, l.from_ats, l.from_ids, l.is_slow, l.resume_points
    into v_ids, v_bands, v_from_ats, v_from_ids, v_is_slow, v_resume_points
    from pgwake.lock_due_jobs(
      claim_rows.queue, v_count, v_now, claim_rows.suspects, claim_rows.cursor is not null, v_is_from_head, v_slow,
      v_left_out, v_resume_points) as l;
  end if;
  v_spent := clock_timestamp() - v_began_at;

  select null::text[] as kinds, null::text[] as cut into v_limited;
  if v_policy.has_kind_limits and v_ids <> '{}' then
    v_limited := pgwake.limit_kinds(v_ids, v_ahead);
    if v_limited.cut is not null then
      v_resume_points := coalesce(v_points, '{}');
      if v_limited.job_ids = '{}' then
        return query
        select c.*
        from pgwake.claim_rows(
          claim_rows.queue, claim_rows.count, claim_rows.worker, claim_rows.lease,
          coalesce(claim_rows.cursor, '{}') || jsonb_build_object(
            'kinds', v_full || v_limited.kinds,
            'cut', coalesce(claim_rows.cursor -> 'cut', '[]') || to_jsonb(v_limited.cut)),
          claim_rows.suspects, claim_rows.unknown_kinds) as c;
        return;
      end if;
    end if;
    v_ids := v_limited.job_ids;
    is_limited := is_limited or coalesce(v_limited.room < 2 * claim_rows.count, false);
  end if;

  if v_ids <> '{}' then
    if v_limited.kinds is not null then
      v_now := v_limited.at;
      claimed_at := v_now;
    elsif num_nulls(v_policy.max_running, v_policy.rate_limit) = 2 then
      -- Later than the ends that have made their keys' room. Claims with limits come one after the other anyway.
      v_now := greatest(v_now, clock_timestamp() + v_ahead);
      claimed_at := v_now;
    end if;
    v_lease_id := gen_random_uuid();
    return query
    with started as (
      update pgwake.jobs_live as j
      set status = 'running', attempt = least(j.attempt, 2147483646) + 1, lease_id = v_lease_id,
        lease_expires_at = v_now + coalesce(
          claim_rows.lease, interval '1 second' * (v_kinds -> j.kind ->> 0)::float8, v_policy.lease),
        claimed_by = coalesce(claim_rows.worker, format('%s:%s', current_setting('application_name'), pg_backend_pid())),
        started_at = v_now
      where j.id = any (v_ids)
      returning j.id, j.kind, j.payload, j.attempt, j.max_attempts, j.lease_expires_at, j.created_at, j.metadata,
        j.priority, j.run_at, j.crash_count,
        case when j.concurrency_key is not null or j.has_children then true end as admits, j.has_steps
    )
    select s.id, v_lease_id, s.kind, s.payload::jsonb, s.attempt::int, s.max_attempts::int, s.lease_expires_at,
      s.created_at::timestamptz, s.metadata::jsonb,
      case when s.run_at <> s.created_at or s.crash_count > 0 or v_kinds is not null or s.admits or s.has_steps then
        nullif(jsonb_strip_nulls(jsonb_build_object(
          'run_at', nullif(s.run_at, s.created_at), 'crash_count', nullif(s.crash_count, 0),
          'admits', s.admits,
          'timeout', case when v_kinds ? s.kind then v_kinds -> s.kind -> 1
            else to_jsonb(extract(epoch from v_policy.timeout)::float8) end))
          || case when s.has_steps then pgwake.claimed_steps(s.id) else '{}' end, '{}')
      end,
      null::timestamptz, null::boolean, null::timestamptz, null::bigint, null::jsonb
    from started as s
    order by s.priority desc, s.run_at, s.id;
    insert into pgwake.counts (queue, at, running_rows) values (claim_rows.queue, v_now, cardinality(v_ids));
    if v_policy.has_audience then
      perform pgwake.announce(array_agg(pgwake.status_event(j.id, j.queue, j.kind, 'pending', 'running')))
      from pgwake.jobs_live as j, pgwake.get_audience() as a
      where j.id = any (v_ids) and pgwake.is_announced(j.queue, a);
    end if;
    if v_policy.has_key_rates then
      perform pgwake.use_key_tokens(claim_rows.queue, v_ids, v_now);
    end if;
    if v_tokens is not null then
      insert into pgwake.rate_buckets (queue, tokens, filled_at)
      values (claim_rows.queue, v_tokens - cardinality(v_ids), v_now)
      on conflict (queue) do update set tokens = excluded.tokens, filled_at = excluded.filled_at;
    end if;
  end if;

  -- What is left: the claimed are gone from the index, as this statement sees it.
  if cardinality(v_ids) < v_count then
    if v_is_from_head or v_next_at is null then
      v_began_at := clock_timestamp();
      v_cost := pgwake.claim_cost();
      if v_bands <> '{}' then
        select min(l.run_at) into next_run_at
        from unnest(v_bands, v_from_ats, v_from_ids) as v(band, from_at, from_id)
        cross join lateral (
          select j.run_at
          from pgwake.jobs_live as j
          where j.queue = claim_rows.queue and j.status = 'pending'
            and least(j.crash_count, 2) * 201 - j.priority = v.band
            and (j.run_at, j.id) > (coalesce(v.from_at, '-infinity'), coalesce(v.from_id, 0))
            and (v_left_out is null or j.kind <> all (v_left_out) or j.run_at > v_now)
            and ((j.expires_at > v_now) is not false or j.attempt > 0)
          order by j.run_at, j.id
          limit 1
        ) as l;
      end if;
      v_cost := pgwake.claim_cost() - v_cost - cardinality(v_ids);
      v_spent := v_spent + (clock_timestamp() - v_began_at);
      v_next_at := null;
      if v_cost > v_slow + 50 * cardinality(v_bands) and (v_resume_points = '{}' or not v_is_from_head) then
        v_next_at := jsonb_build_array(next_run_at);
      end if;
    else
      next_run_at := v_next_at ->> 0;
    end if;
    if not claim_rows.suspects then
      next_run_at := least(next_run_at, v_policy.recheck_at, case
        when isfinite(v_keys_from) then (v_keys ->> 1)::timestamptz + v_ahead end);
    end if;
  elsif v_count < claim_rows.count then
    next_run_at := v_again_at;
  end if;
  if v_limited.cut is not null then
    next_run_at := v_now;
  elsif v_full <> '{}' and cardinality(v_ids) < claim_rows.count then
    next_run_at := least(next_run_at, v_full_at);
    insert into pgwake.kind_waiters (kind, queue, at)
    select k.name, claim_rows.queue, clock_timestamp()
    from pgwake.kinds as k
    where k.name = any (v_full) and k.max_running > 0
      and not exists (select from pgwake.kind_waiters as w where w.kind = k.name and w.queue = claim_rows.queue);
    if found then
      next_run_at := v_now;  -- an end just before has not seen this
    end if;
  end if;
  if claim_rows.unknown_kinds is not null and cardinality(v_ids) < claim_rows.count then
    left_out_id := pgwake.newest_left_out(claim_rows.queue, claim_rows.unknown_kinds, v_now);
  end if;

  if not v_is_from_head and cardinality(v_ids) < v_count then
    next_run_at := least(next_run_at, v_head_at + v_ahead);
  end if;
  if v_is_slow or v_resume_points <> '{}' or v_next_at is not null or v_keys is not null then
    if v_is_from_head then
      v_head_at := clock_timestamp() + least(20 * v_spent, interval '1 minute');
    end if;
    next_cursor := jsonb_strip_nulls(jsonb_build_object(
      'head_at', v_head_at, 'resume_points', v_resume_points, 'next_at', v_next_at, 'keys', v_keys));
  end if;
  if v_full <> '{}' or v_limited.kinds is not null or v_policy.has_kind_limits and claim_rows.cursor ? 'full' then
    -- Of what was left out, or met, the next claim asks before its look.
    next_cursor := jsonb_strip_nulls(case
        when v_full = '{}' then coalesce(next_cursor, '{}') || jsonb_build_object('full', claim_rows.cursor -> 'full')
        else claim_rows.cursor - 'cut' || jsonb_build_object('keys', v_keys, 'full', case
            when (select count(*) from jsonb_object_keys(claim_rows.cursor -> 'full')) between 1 and 7
              then claim_rows.cursor -> 'full' else '{}' end
          || jsonb_build_object(v_full::text, coalesce(next_cursor, '{}') - 'keys'))
      end || jsonb_build_object('kinds', v_full || v_limited.kinds));
  end if;
  return next;
end
$$;

comment on function pgwake.claim_rows is
  'Claims up to count due jobs of a queue, a row each; and a row that says next_run_at, '
  'next_cursor, claimed_at, is_limited, left_out_id.';
revoke all on function pgwake.claim_rows from public;

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
-- see limit_claim. Jobs whose parents have ended are admitted first, and those with a
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
-- Rechecks are read by a cursor too. claim_known_batch has its unknown_kinds in it.
--
-- Raises PW003, and PW006 in a copy of the database: see adopt. Locks the jobs it takes
-- (and one that had to make room for one that crashed), skips locked ones. Its parts, in
-- their order: limit_claim, admit_due_jobs, lock_due_jobs, start_jobs, left_due_at. They
-- have its settings from it, since to set them again costs 10% of a claim of one job.
-- For the policy rides queues_pkey, kinds_claim_idx and rechecks_due_idx.
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
  v_admitted record;
  v_locked record;
  v_count int := claim_batch.count;
  v_tokens double precision;
  v_again_at timestamptz;
  v_began_at timestamptz := clock_timestamp();
  v_spent interval;
  v_cost bigint;

  -- The cursor: resume_points are lock_due_jobs'; next_at is [next_run_at] where it is slow to find.
  v_slow int := 2 * least(greatest(250, claim_batch.count), 10000);
  v_head_at timestamptz;
  v_resume_points jsonb := '{}';
  v_next_at jsonb;
  v_keys jsonb;  -- of the rechecks: [at] to start at, [clock] to read from the head again
  v_keys_from timestamptz := '-infinity';
  v_is_from_head boolean := true;
  v_unknown_kinds text[];
begin
  if (claim_batch.queue is not null and claim_batch.count between 1 and 10000
      and (octet_length(claim_batch.worker) between 1 and 512) is not false
      and (claim_batch.lease between interval '1 second' and interval '1 day') is not false) is not true
  then
    perform pgwake.check_claim_arguments(claim_batch.queue, claim_batch.count, claim_batch.worker, claim_batch.lease);
  end if;
  if current_setting('pgwake.adopted', true) is distinct from pg_backend_pid()::text then
    perform pgwake.check_adopted();  -- once a session
  end if;
  if claim_batch.cursor is not null then
    perform pgwake.check_cursor(claim_batch.cursor);
    v_head_at := claim_batch.cursor ->> 'head_at';
    v_resume_points := coalesce(claim_batch.cursor -> 'resume_points', '{}');
    v_next_at := claim_batch.cursor -> 'next_at';
    if claim_batch.cursor ? 'unknown_kinds' then
      v_unknown_kinds := array(select jsonb_array_elements_text(claim_batch.cursor -> 'unknown_kinds'));
    end if;
    v_is_from_head := v_head_at is null
      or v_head_at not between v_began_at and v_began_at + interval '1 minute';
    v_keys := claim_batch.cursor -> 'keys';
    if (v_keys ->> 1)::timestamptz between v_began_at and v_began_at + interval '1 minute' then
      v_keys_from := coalesce(v_keys ->> 0, '-infinity');
    end if;
  end if;

  v_cost := pgwake.rows_read();
  -- Not a function of its own: that costs a claim of one job 6% of its time.
  select q.paused_until, coalesce(q.lease, interval '5 minutes') as lease, q.timeout, q.max_running, q.rate_limit,
    q.rate_burst, q.key_limit, known.by_name as kinds,
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
  ) as known;
  claimed_at := v_now;
  jobs := '{}';
  is_limited := v_policy.max_running is not null or v_policy.rate_limit is not null;
  if v_policy.paused_until > v_now then
    next_run_at := nullif(v_policy.paused_until, 'infinity');
    return;
  end if;
  if v_policy.timeout is not null then
    -- A time limit that a kind declares is its worker's to know.
    v_policy.kinds := coalesce((
      select jsonb_object_agg(k.name, '[null, null]'::jsonb)
      from pgwake.kinds as k where k.declared_timeout is not null), '{}') || coalesce(v_policy.kinds, '{}');
  end if;

  if is_limited then
    select a.count, a.at, a.tokens, a.next_at into v_count, v_now, v_tokens, v_again_at
    from pgwake.limit_claim(
      claim_batch.queue, v_count, v_policy.max_running, v_policy.rate_limit, v_policy.rate_burst, v_now) as a;
    claimed_at := v_now;
    if v_count = 0 then
      next_run_at := v_again_at;
      return;
    end if;
  end if;

  if v_policy.recheck_at <= v_now and not claim_batch.suspects then
    v_admitted := pgwake.admit_due_jobs(claim_batch.queue, v_count, v_policy.key_limit, v_now, v_keys_from);
    v_policy.recheck_at := v_admitted.recheck_at;
    v_now := v_admitted.at;
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

  v_locked := pgwake.lock_due_jobs(
    claim_batch.queue, v_count, v_now, claim_batch.suspects, claim_batch.cursor is not null, v_is_from_head, v_slow,
    v_unknown_kinds, v_resume_points);
  v_resume_points := v_locked.resume_points;
  v_spent := clock_timestamp() - v_began_at;

  if v_locked.ids <> '{}' then
    jobs := pgwake.start_jobs(
      claim_batch.queue, v_locked.ids, v_now,
      coalesce(claim_batch.worker, format('%s:%s', current_setting('application_name'), pg_backend_pid())),
      claim_batch.lease, v_policy.lease, v_policy.kinds, v_policy.timeout);
    if v_tokens is not null then
      insert into pgwake.rate_buckets (queue, tokens, filled_at)
      values (claim_batch.queue, v_tokens - cardinality(jobs), v_now)
      on conflict (queue) do update set tokens = excluded.tokens, filled_at = excluded.filled_at;
    end if;
  end if;

  -- What is left: the claimed are gone from the index, as this statement sees it.
  if cardinality(v_locked.ids) < v_count then
    if v_is_from_head or v_next_at is null then
      v_began_at := clock_timestamp();
      v_cost := pgwake.claim_cost();
      next_run_at := pgwake.left_due_at(
        claim_batch.queue, v_locked.bands, v_locked.from_ats, v_locked.from_ids, v_unknown_kinds, v_now);
      v_cost := pgwake.claim_cost() - v_cost - cardinality(v_locked.ids);
      v_spent := v_spent + (clock_timestamp() - v_began_at);
      v_next_at := null;
      if v_cost > v_slow + 50 * cardinality(v_locked.bands) and (v_resume_points = '{}' or not v_is_from_head) then
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
  elsif cardinality(v_locked.ids) < v_count then
    next_run_at := least(next_run_at, v_head_at + (pgwake.now() - now()));
  end if;
  claim_batch.cursor := case
    when v_locked.is_slow or v_resume_points <> '{}' or v_next_at is not null or v_keys is not null then
      jsonb_strip_nulls(jsonb_build_object(
        'head_at', v_head_at, 'resume_points', v_resume_points, 'next_at', v_next_at, 'keys', v_keys))
  end;
end
$$;

comment on function pgwake.claim_batch is
  'Claims up to count due jobs of a queue; one row: jobs, next_run_at, cursor, '
  'claimed_at, is_limited.';
revoke all on function pgwake.claim_batch from public;

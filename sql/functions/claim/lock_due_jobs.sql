-- Locks the next due jobs of a queue, for claim_rows to start: up to count, priority
-- band by priority band. Internal; see claim_rows for what a cursor is.
--
--   at             what is due
--   suspects       see claim_rows
--   has_cursor     false: nothing is remembered, but is_slow says that a gap between
--                  bands has cost more than slow (see claim_cost)
--   is_from_head   true: each band from its head; false: from its resume point
--   unknown_kinds  left out; null: none is
--   resume_points  an object, band -> [run_at, id] to start behind, perhaps with
--                  [run_at, id] to start behind next; comes back as the next claim is to
--                  have it
--
-- ids: in claim order, but for one that crashed once, which comes last. bands, from_ats,
-- from_ids: the bands that were looked at, and where.
--
-- Steps through the bands in use, since one scan over all priorities wades through
-- everything that is scheduled for later at a higher one. Locks first, and skips what is
-- locked. Rides jobs_claim_idx.
create or replace function pgwake.lock_due_jobs(
  queue text,
  count int,
  at timestamptz,
  suspects boolean,
  has_cursor boolean,
  is_from_head boolean,
  slow int,
  unknown_kinds text[],
  inout resume_points jsonb,
  out ids bigint[],
  out bands int[],
  out from_ats timestamptz[],
  out from_ids bigint[],
  out is_slow boolean
)
returns record
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  -- The priority bands: see jobs_claim_idx.
  v_band int := case when lock_due_jobs.suspects then 301 else -101 end;
  v_end int := case when lock_due_jobs.suspects then 503 else 302 end;
  v_found int;
  v_gap int;
  v_gap_cost bigint;
  v_cost bigint;

  -- The look at one of them: behind from, up to to.
  v_resume_point jsonb;
  v_want int;
  v_from timestamptz;
  v_from_id bigint;
  v_to timestamptz;
  v_to_id bigint;
  v_more bigint[];
  v_due_at timestamptz;
  v_last_at timestamptz;
  v_is_full boolean := false;
  v_has_crashed boolean := false;
begin
  ids := '{}';
  bands := '{}';
  from_ats := '{}';
  from_ids := '{}';
  is_slow := false;
  loop
    -- To the next band in use: one that the cursor knows, or one in the gap before it.
    v_gap := v_band;
    v_band := v_end;
    if resume_points <> '{}' then
      select least(v_end, min(p.band::int)) into v_band
      from jsonb_object_keys(resume_points) as p(band) where p.band::int > v_gap;
    end if;
    v_gap_cost := pgwake.claim_cost();
    select least(j.crash_count, 2) * 201 - j.priority into v_found
    from pgwake.jobs_live as j
    where j.queue = lock_due_jobs.queue and j.status = 'pending'
      and least(j.crash_count, 2) * 201 - j.priority > v_gap
      and least(j.crash_count, 2) * 201 - j.priority < v_band
    order by least(j.crash_count, 2) * 201 - j.priority
    limit 1;
    v_gap_cost := pgwake.claim_cost() - v_gap_cost;
    v_band := coalesce(v_found, v_band);
    if v_gap_cost > lock_due_jobs.slow then
      -- Their own bands, or those of the band that was found, which this look makes known.
      if not lock_due_jobs.has_cursor then
        is_slow := true;
      else
        resume_points := resume_points || pgwake.dead_bands(lock_due_jobs.queue, v_gap, v_band);
      end if;
    end if;
    exit when v_band >= v_end;

    v_resume_point := resume_points -> v_band::text;
    v_from := '-infinity';
    v_from_id := 0;
    if not lock_due_jobs.is_from_head and v_resume_point is not null then
      v_from := coalesce(v_resume_point ->> 0, '-infinity');
      v_from_id := coalesce(v_resume_point ->> 1, '0');
    end if;
    bands := bands || v_band;
    from_ats := from_ats || v_from;
    from_ids := from_ids || v_from_id;

    v_want := lock_due_jobs.count - cardinality(ids);
    v_to := lock_due_jobs.at;
    v_to_id := 9223372036854775807;
    if v_band > 100 and not lock_due_jobs.suspects then
      v_want := case when v_has_crashed then 0 else 1 end;
      if v_is_full and v_band = v_end - 1 then
        v_to := v_last_at;
        v_to_id := ids[lock_due_jobs.count];
      end if;
    end if;
    continue when v_want = 0;

    v_cost := pgwake.claim_cost();
    select array_agg(due.id), max(due.run_at) into v_more, v_due_at
    from (
      select j.id, j.run_at
      from pgwake.jobs_live as j
      where j.queue = lock_due_jobs.queue and j.status = 'pending'
        and least(j.crash_count, 2) * 201 - j.priority = v_band
        and (j.run_at, j.id) > (v_from, v_from_id) and (j.run_at, j.id) <= (v_to, v_to_id)
        and (lock_due_jobs.unknown_kinds is null or j.kind <> all (lock_due_jobs.unknown_kinds))
        and ((j.expires_at > lock_due_jobs.at) is not false or j.attempt > 0)
      order by j.run_at, j.id
      limit v_want
      for update skip locked
    ) as due;
    v_cost := pgwake.claim_cost() - v_cost - coalesce(cardinality(v_more), 0);

    if v_resume_point is not null or v_cost > lock_due_jobs.slow or v_gap_cost > lock_due_jobs.slow then
      v_resume_point := pgwake.next_resume_point(v_resume_point, case
        when v_more is not null then jsonb_build_array(v_due_at, v_more[cardinality(v_more)])
        when v_from > lock_due_jobs.at - interval '1 second' then jsonb_build_array(v_from, v_from_id)
        else jsonb_build_array(lock_due_jobs.at - interval '1 second', 0)
      end, lock_due_jobs.is_from_head, v_cost, lock_due_jobs.slow);
      resume_points := case
        when v_resume_point is null then resume_points - v_band::text
        else resume_points || jsonb_build_object(v_band, v_resume_point)
      end;
    end if;

    continue when v_more is null;
    if v_band > 100 and not lock_due_jobs.suspects then
      v_has_crashed := true;
      ids := ids[:lock_due_jobs.count - 1] || v_more;
      exit when cardinality(ids) = lock_due_jobs.count;
    else
      ids := ids || v_more;
      if cardinality(ids) = lock_due_jobs.count then
        exit when lock_due_jobs.suspects;
        -- One that crashed once comes in its turn: if it is before the last of these.
        v_is_full := true;
        v_last_at := v_due_at;
        v_end := v_band + 202;
        v_band := 100;
      end if;
    end if;
  end loop;
end
$$;

comment on function pgwake.lock_due_jobs is
  'Internal: locks the next due jobs of a queue.';
revoke all on function pgwake.lock_due_jobs from public;

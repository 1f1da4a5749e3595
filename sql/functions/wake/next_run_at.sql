-- When the next pending job of a queue is due, or was: the least run_at; null if
-- nothing is pending that has not expired. For jobs that wait for room in their
-- concurrency key: when to recheck whether there is.
--
-- How long a consumer may sleep. Jobs with two crashes or more are left out, as in a
-- claim: see next_suspect_run_at. Steps through the priority bands in use; rides
-- jobs_claim_idx and rechecks_due_idx. While claim_jobs keeps a cursor in this session
-- it starts there too, and is not later than the next look from the head (see
-- claim_rows). Raises PW003 for a cursor that is none.
create or replace function pgwake.next_run_at(queue text default 'default')
returns timestamptz
language plpgsql stable
security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
declare
  v_now timestamptz := pgwake.now();
  v_cursor jsonb := pgwake.session_cursors() -> next_run_at.queue;
  v_head_at timestamptz;
  v_resume_points jsonb := '{}';
  v_next_at jsonb;
  v_keys_at timestamptz;
  v_keys_from timestamptz := '-infinity';
  v_band int := -101;
  v_known int;
  v_from timestamptz;
  v_from_id bigint;
  v_run_at timestamptz;
  v_next timestamptz;
begin
  if v_cursor is not null then
    perform pgwake.check_cursor(v_cursor);
    v_head_at := v_cursor ->> 'head_at';
    if v_head_at between clock_timestamp() and clock_timestamp() + interval '1 minute' then
      v_resume_points := coalesce(v_cursor -> 'resume_points', '{}');
      v_next := v_head_at + (pgwake.now() - now());
      v_next_at := v_cursor -> 'next_at';
    end if;
    v_keys_at := v_cursor #>> '{keys,1}';
    if v_keys_at between clock_timestamp() and clock_timestamp() + interval '1 minute' then
      v_keys_from := coalesce(v_cursor #>> '{keys,0}', '-infinity');
      v_next := least(v_next, v_keys_at + (pgwake.now() - now()));
    end if;
  end if;

  select least(v_next, min(r.at)) into v_next
  from pgwake.rechecks as r
  where r.queue = next_run_at.queue and r.at >= v_keys_from;
  if v_next_at is not null then
    return least(v_next, (v_next_at ->> 0)::timestamptz);
  end if;

  loop
    v_known := 302;
    if v_resume_points <> '{}' then
      select least(302, min(p.band::int)) into v_known
      from jsonb_object_keys(v_resume_points) as p(band) where p.band::int > v_band;
    end if;
    select least(j.crash_count, 2) * 201 - j.priority, j.run_at into v_band, v_run_at
    from pgwake.jobs_live as j
    where j.queue = next_run_at.queue and j.status = 'pending'
      and least(j.crash_count, 2) * 201 - j.priority > v_band
      and least(j.crash_count, 2) * 201 - j.priority < v_known
      and ((j.expires_at > v_now) is not false or j.attempt > 0)
    order by least(j.crash_count, 2) * 201 - j.priority, j.run_at
    limit 1;
    if not found then
      exit when v_known = 302;
      v_band := v_known;
      v_from := coalesce(v_resume_points -> v_band::text ->> 0, '-infinity');
      v_from_id := coalesce(v_resume_points -> v_band::text ->> 1, '0');
      select j.run_at into v_run_at
      from pgwake.jobs_live as j
      where j.queue = next_run_at.queue and j.status = 'pending'
        and least(j.crash_count, 2) * 201 - j.priority = v_band
        and (j.run_at, j.id) > (v_from, v_from_id)
        and ((j.expires_at > v_now) is not false or j.attempt > 0)
      order by j.run_at, j.id
      limit 1;
    end if;
    v_next := least(v_next, v_run_at);
  end loop;
  return v_next;
end
$$;

comment on function pgwake.next_run_at is
  'When the next pending job of a queue is due; null if nothing is pending.';
revoke all on function pgwake.next_run_at from public;

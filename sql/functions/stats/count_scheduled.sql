-- How many of a queue's pending jobs are not due yet, and since when the longest-due
-- one of them has been due (null if none is). Internal, for get_queue_stats, which
-- knows from the counts how many are pending: pending_rows.
--
-- Counts index entries from now on, at most 10,001: what is due later lies behind all
-- that claims leave dead. Only if there are more it counts those that are due, as far,
-- and only if there are more of these too it estimates, by what a hundred pages spread
-- over the table hold. Rides jobs_claim_idx.
--
-- Without the priority bands' expression the index alone answers, at a tenth of the
-- cost: PostgreSQL 18 skips from band to band there. Before, it reads all entries of the
-- queue, so a longer queue's bands are stepped through, as by a claim.
--
-- Where the setting pgwake.exact_rows says how far to count, all queues share what the
-- pages hold, since it is kept for the transaction: pgwake.later_share.
create or replace function pgwake.count_scheduled(
  queue text,
  pending_rows bigint,
  out scheduled_rows bigint,
  out oldest_run_at timestamptz,
  out is_estimate boolean
)
returns record
language plpgsql stable strict
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
declare
  v_bound constant int := coalesce(nullif(current_setting('pgwake.exact_rows', true), '')::int, 10000) + 1;
  v_is_shared constant boolean := current_setting('pgwake.exact_rows', true) <> '';
  v_is_skipped constant boolean :=
    count_scheduled.pending_rows <= 2 * v_bound or current_setting('server_version_num')::int >= 180000;
  v_now timestamptz := pgwake.now();
  v_bands int[] := '{}';  -- see jobs_claim_idx
  v_band int := -101;
  v_run_at timestamptz;
  v_count bigint;
  v_due_rows bigint := 0;
  v_share double precision;
  v_pages bigint;
begin
  scheduled_rows := 0;
  is_estimate := false;

  loop
    select least(j.crash_count, 2) * 201 - j.priority, j.run_at into v_band, v_run_at
    from pgwake.jobs_live as j
    where j.queue = count_scheduled.queue and j.status = 'pending'
      and least(j.crash_count, 2) * 201 - j.priority > v_band
    order by least(j.crash_count, 2) * 201 - j.priority, j.run_at
    limit 1;
    exit when not found;
    v_bands := v_bands || v_band;
    oldest_run_at := least(oldest_run_at, v_run_at);
    continue when v_is_skipped or scheduled_rows >= v_bound;
    select count(*) into v_count
    from (
      select from pgwake.jobs_live as j
      where j.queue = count_scheduled.queue and j.status = 'pending'
        and least(j.crash_count, 2) * 201 - j.priority = v_band and j.run_at > v_now
      limit v_bound - scheduled_rows
    ) as c;
    scheduled_rows := scheduled_rows + v_count;
  end loop;
  if v_is_skipped then
    select count(*) into scheduled_rows
    from (
      select from pgwake.jobs_live as j
      where j.queue = count_scheduled.queue and j.status = 'pending' and j.run_at > v_now
      limit v_bound
    ) as c;
  end if;
  oldest_run_at := case when oldest_run_at <= v_now then oldest_run_at end;
  if scheduled_rows < v_bound then
    return;
  end if;

  if v_is_skipped then
    v_bands := '{}';
    select count(*) into v_due_rows
    from (
      select from pgwake.jobs_live as j
      where j.queue = count_scheduled.queue and j.status = 'pending' and j.run_at <= v_now
      limit v_bound
    ) as c;
  end if;
  foreach v_band in array v_bands loop
    exit when v_due_rows >= v_bound;
    select count(*) into v_count
    from (
      select from pgwake.jobs_live as j
      where j.queue = count_scheduled.queue and j.status = 'pending'
        and least(j.crash_count, 2) * 201 - j.priority = v_band and j.run_at <= v_now
      limit v_bound - v_due_rows
    ) as c;
    v_due_rows := v_due_rows + v_count;
  end loop;
  if v_due_rows < v_bound then
    scheduled_rows := count_scheduled.pending_rows - v_due_rows;
    return;
  end if;

  is_estimate := true;
  v_share := nullif(current_setting('pgwake.later_share', true), '')::double precision;
  if v_share is null then
    v_pages := pg_relation_size('pgwake.jobs_live') / current_setting('block_size')::int;
    select avg((j.run_at > v_now)::int) into v_share
    from pgwake.jobs_live as j
    where j.ctid = any (array(
        select format('(%s,%s)', b.page, o.place)::tid
        from (select distinct v_pages * n / 100 as page from generate_series(0, 99) as n) as b
        cross join generate_series(1, 20) as o(place)))
      and (j.queue = count_scheduled.queue or v_is_shared) and j.status = 'pending';
    if v_is_shared then
      perform set_config('pgwake.later_share', coalesce(v_share, 0.5)::text, true);
    end if;
  end if;
  scheduled_rows := least(
    greatest((count_scheduled.pending_rows * coalesce(v_share, 0.5))::bigint, v_bound),
    count_scheduled.pending_rows - v_bound);
end
$$;

comment on function pgwake.count_scheduled is
  'Internal: how many pending jobs are not due, and the longest-due one.';
revoke all on function pgwake.count_scheduled from public;

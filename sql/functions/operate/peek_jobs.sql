-- The jobs of a queue that are due, at most count (1 to 1000), in the order in which
-- they would be claimed: priority descending, run_at, id; last those that crashed twice
-- or more, which only a quarantine takes. Claims nothing, locks nothing, and asks
-- neither whether the queue is paused nor for its limits.
--
-- Raises PW003. Steps through the priority bands in use; rides jobs_claim_idx.
create or replace function pgwake.peek_jobs(queue text default 'default', count int default 10)
returns table (
  id bigint,
  kind text,
  priority smallint,
  run_at timestamptz,
  attempt int,
  crash_count int,
  bounce_count int,
  payload jsonb
)
language plpgsql stable
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
  v_band int := -101;
  v_ids bigint[] := '{}';
begin
  if peek_jobs.queue is null then
    perform pgwake.raise_invalid('queue is null', 'Name the queue to look into.');
  end if;
  if peek_jobs.count between 1 and 1000 is not true then
    perform pgwake.raise_invalid(
      format('count is %s', coalesce(peek_jobs.count::text, 'null')), 'Use 1 to 1000.');
  end if;
  loop
    select least(j.crash_count, 2) * 201 - j.priority into v_band
    from pgwake.jobs_live as j
    where j.queue = peek_jobs.queue and j.status = 'pending'
      and least(j.crash_count, 2) * 201 - j.priority > v_band
    order by least(j.crash_count, 2) * 201 - j.priority
    limit 1;
    exit when not found;
    v_ids := v_ids || array(
      select j.id
      from pgwake.jobs_live as j
      where j.queue = peek_jobs.queue and j.status = 'pending'
        and least(j.crash_count, 2) * 201 - j.priority = v_band and j.run_at <= v_now
        and ((j.expires_at > v_now) is not false or j.attempt > 0)
      order by j.run_at, j.id
      limit peek_jobs.count
    );
  end loop;
  return query
  select j.id, j.kind, j.priority::smallint, j.run_at::timestamptz, j.attempt::int, j.crash_count::int,
    j.bounce_count::int, j.payload::jsonb
  from pgwake.jobs_live as j
  where j.id = any (v_ids)
  order by (j.crash_count >= 2), j.priority desc, j.run_at, j.id
  limit peek_jobs.count;
end
$$;

comment on function pgwake.peek_jobs is
  'The jobs of a queue that are due, in the order of a claim, without claiming them.';
revoke all on function pgwake.peek_jobs from public;

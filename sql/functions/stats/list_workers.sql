-- The workers that report themselves, by name, as they last did: see report_worker.
--
-- running_count: how many jobs of the queues it names it has claimed; those that wait
-- in its memory for a free slot count too. is_live: it has been seen within 30 seconds.
--
-- Reads only. Rides jobs_lease_idx.
create or replace function pgwake.list_workers()
returns table (
  name text,
  host text,
  pid int,
  version text,
  queues text[],
  kinds text[],
  started_at timestamptz,
  seen_at timestamptz,
  running_count bigint,
  is_live boolean
)
language plpgsql stable
security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
begin
  return query
  select w.name, w.host, w.pid, w.version, w.queues, w.kinds, w.started_at, w.seen_at,
    (
      select count(*)
      from pgwake.jobs_live as j
      where j.status = 'running' and j.queue = any (w.queues) and j.claimed_by = w.name
    ),
    pgwake.is_live(w.seen_at)
  from pgwake.workers as w
  order by w.name;
end
$$;

comment on function pgwake.list_workers is
  'The workers that report themselves, with what they run.';
revoke all on function pgwake.list_workers from public;

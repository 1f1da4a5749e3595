-- Notes how far running jobs are: parallel arrays of ids, lease ids and progresses, any
-- JSON value each (at most 4 KiB as text; null takes the last one back). A progress
-- stays with its job, whatever becomes of it, until the next one.
--
-- Returns an outcome each, in the order given: noted, cancel_requested (noted too; stop
-- the job and fail_job it), skipped (somebody has the row locked, who ends or renews
-- the job: nothing was noted; say it again later), lease_lost or no_such_job. Does not
-- extend the lease. Never raises for one job; PW003 for arrays that don't pair up, and
-- for a progress that is too large, with nothing changed.
--
-- Who watches status events (see watch) hears of each on channel job_progress:
-- {id, queue, kind, progress}, under 6 kB.
--
-- Waits for no lock: locks in id order, skips locked rows. Rides jobs_live_pkey, and
-- touches no index.
create or replace function pgwake.set_progresses(job_ids bigint[], lease_ids uuid[], progresses jsonb[])
returns text[]
language plpgsql volatile
security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set enable_nestloop = off
set jit = off
as $$
#variable_conflict use_column
declare
  v_audience pgwake.audience := pgwake.get_audience();
  v_bytes int;
  v_locked bigint[] := pgwake.lock_held_jobs(set_progresses.job_ids, set_progresses.lease_ids);
  v_events text[];
begin
  if cardinality(set_progresses.progresses) is distinct from cardinality(set_progresses.job_ids) then
    perform pgwake.raise_invalid(
      format('%s job ids but %s progresses', cardinality(set_progresses.job_ids),
             coalesce(cardinality(set_progresses.progresses)::text, 'null')),
      'Pass one progress for each job id (null for none).');
  end if;
  select max(octet_length(p.progress::text)) into v_bytes
  from unnest(set_progresses.progresses) as p(progress);
  if v_bytes > 4096 then
    perform pgwake.raise_invalid(
      format('a progress has %s bytes', v_bytes),
      'Use at most 4096 bytes of JSON text: progress is for people to look at.');
  end if;

  with noted as (
    update pgwake.jobs_live as j
    set progress = u.progress
    from unnest(set_progresses.job_ids, set_progresses.progresses) as u(id, progress)
    where u.id = j.id and j.id = any (v_locked)
    returning j.id, j.queue, j.kind, j.progress
  )
  select array_agg(json_build_object('id', n.id, 'queue', n.queue, 'kind', n.kind, 'progress', n.progress)::text)
    filter (where pgwake.is_announced(n.queue, v_audience))
  into v_events
  from noted as n;
  perform pg_notify('job_progress', e.event) from unnest(v_events) as e(event);

  return pgwake.held_outcomes(set_progresses.job_ids, set_progresses.lease_ids, 'noted', v_locked);
end
$$;

comment on function pgwake.set_progresses is
  'Notes how far running jobs are; returns noted, cancel_requested, skipped, lease_lost '
  'or no_such_job for each.';
revoke all on function pgwake.set_progresses from public;

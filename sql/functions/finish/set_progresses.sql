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
  v_noted bigint[];
  v_events text[];
begin
  perform pgwake.check_leases(set_progresses.job_ids, set_progresses.lease_ids);
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

  with mine as materialized (
    select u.id, u.progress
    from unnest(set_progresses.job_ids, set_progresses.lease_ids, set_progresses.progresses)
      as u(id, lease_id, progress)
    where u.lease_id = (select j.lease_id from pgwake.jobs_live as j where j.id = u.id)
  ),
  locked as materialized (
    select j.id
    from pgwake.jobs_live as j
    where j.id = any (array(select mine.id from mine)) and j.lease_id = any (set_progresses.lease_ids)
    order by j.id
    for no key update skip locked
  ),
  noted as (
    update pgwake.jobs_live as j
    set progress = m.progress
    from mine as m
    where m.id = j.id and j.id = any (array(select locked.id from locked))
    returning j.id, j.queue, j.kind, j.progress
  )
  select array_agg(n.id),
    array_agg(json_build_object('id', n.id, 'queue', n.queue, 'kind', n.kind, 'progress', n.progress)::text)
      filter (where pgwake.is_announced(n.queue, v_audience))
  into v_noted, v_events
  from noted as n;
  perform pg_notify('job_progress', e.event) from unnest(v_events) as e(event);

  return array(
    select
      case
        when j.lease_id = u.lease_id and u.id <> all (coalesce(v_noted, '{}')) then 'skipped'
        when j.lease_id = u.lease_id and j.cancel_requested_at is not null then 'cancel_requested'
        when j.lease_id = u.lease_id then 'noted'
        when j.id is null and pgwake.lease_outcome(u.id, u.lease_id) = 'no_such_job' then 'no_such_job'
        else 'lease_lost'
      end
    from unnest(set_progresses.job_ids, set_progresses.lease_ids) with ordinality as u(id, lease_id, place)
    left join lateral (
      select l.id, l.lease_id, l.cancel_requested_at
      from pgwake.jobs_live as l where l.id = u.id
      offset 0
    ) as j on true
    order by u.place
  );
end
$$;

comment on function pgwake.set_progresses is
  'Notes how far running jobs are; returns noted, cancel_requested, skipped, lease_lost '
  'or no_such_job for each.';
revoke all on function pgwake.set_progresses from public;

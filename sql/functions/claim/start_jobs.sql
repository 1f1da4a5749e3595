-- Makes jobs that this transaction has locked running, for claim_batch, which has found
-- them due: under one fresh lease_id, with their attempt counted. Internal.
--
-- lease: of all, else the kind's, else default_lease. kinds: an object, kind -> [lease,
-- timeout] in seconds, null where policy has none; timeout: of all other kinds.
-- Returns the jobs in claim order. Counts and announces them. Rides jobs_live_pkey.
create or replace function pgwake.start_jobs(
  queue text, job_ids bigint[], at timestamptz, worker text, lease interval, default_lease interval, kinds jsonb,
  timeout interval
)
returns pgwake.claimed_job[]
language plpgsql volatile
as $$
#variable_conflict use_column
declare
  v_has_timeouts constant boolean := start_jobs.kinds is not null or start_jobs.timeout is not null;
  v_lease_id constant uuid := gen_random_uuid();
  v_leased_at constant timestamptz := greatest(start_jobs.at, pgwake.called_at());
  v_audience constant pgwake.audience := pgwake.get_audience();
  v_jobs pgwake.claimed_job[];
  v_events text[];
begin
  with claimed as (
    update pgwake.jobs_live as j
    set status = 'running', attempt = least(j.attempt, 2147483646) + 1, lease_id = v_lease_id,
      lease_expires_at = v_leased_at + coalesce(
        start_jobs.lease, interval '1 second' * (start_jobs.kinds -> j.kind ->> 0)::float8, start_jobs.default_lease),
      claimed_by = start_jobs.worker, started_at = start_jobs.at
    where j.id = any (start_jobs.job_ids)
    returning j.id, j.queue, j.kind, j.priority, j.run_at,
      row(j.id, j.lease_id, j.queue, j.kind, j.payload, j.attempt, j.max_attempts, j.lease_expires_at,
          j.created_at, j.metadata,
          case when j.run_at <> j.created_at or j.crash_count > 0 or v_has_timeouts then
            nullif(jsonb_strip_nulls(jsonb_build_object(
              'run_at', nullif(j.run_at, j.created_at), 'crash_count', nullif(j.crash_count, 0),
              'timeout', case when start_jobs.kinds ? j.kind then start_jobs.kinds -> j.kind -> 1
                else to_jsonb(extract(epoch from start_jobs.timeout)::float8) end)), '{}')
          end)::pgwake.claimed_job as job
  )
  select
    array_agg(c.job order by c.priority desc, c.run_at, c.id),
    array_agg(pgwake.status_event(c.id, c.queue, c.kind, 'pending', 'running'))
      filter (where pgwake.is_announced(c.queue, v_audience))
  into v_jobs, v_events
  from claimed as c;
  insert into pgwake.counts (queue, at, running_rows)
  values (start_jobs.queue, start_jobs.at, cardinality(v_jobs));
  if v_events is not null then
    perform pgwake.announce(v_events);
  end if;
  return v_jobs;
end
$$;

comment on function pgwake.start_jobs is
  'Internal: makes jobs that are locked running.';
revoke all on function pgwake.start_jobs from public;

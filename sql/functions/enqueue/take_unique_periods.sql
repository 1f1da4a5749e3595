-- Has the unique keys of jobs that have just come stay taken until their times
-- (unique_until), whether the jobs have ended or not. Parallel arrays, of one job each;
-- no key is named twice. Internal: for after_insert_jobs and add_unique_jobs, all jobs of
-- a statement at once.
--
-- Raises PW005 if another job has one of them, with that job's id in the detail and the
-- constraint unique_periods_pkey; PW003 for a time that clients can't read, and for a job
-- without a key. Waits for other open transactions that take one; jobs_unique_key_idx has
-- let them go first, so that they do not wait for this one. Rides unique_periods_pkey.
create or replace function pgwake.take_unique_periods(
  job_ids bigint[], kinds text[], unique_keys text[], untils timestamptz[]
)
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
declare
  v_taken bigint[];
  v_job record;
begin
  select u.unique_key, u.until into v_job
  from unnest(take_unique_periods.job_ids, take_unique_periods.unique_keys, take_unique_periods.untils)
    as u(job_id, unique_key, until)
  where u.unique_key is null or u.until not between '0001-01-02 00:00+00' and '9999-12-30 00:00+00'
  limit 1;
  if found then
    perform pgwake.raise_invalid(
      format('unique_until is %s%s', v_job.until, case when v_job.unique_key is null then ', without a unique_key' end),
      'Use a time in the years 1 to 9999, for a job with a unique_key.');
  end if;

  with taken as (
    insert into pgwake.unique_periods as p (kind, unique_key, until, job_id)
    select u.kind, u.unique_key, u.until, u.job_id
    from unnest(
      take_unique_periods.kinds, take_unique_periods.unique_keys, take_unique_periods.untils,
      take_unique_periods.job_ids) as u(kind, unique_key, until, job_id)
    order by u.kind, u.unique_key
    on conflict (kind, unique_key) do update
    set until = excluded.until, job_id = excluded.job_id
    where p.until <= pgwake.now() or p.job_id = excluded.job_id
    returning p.job_id
  )
  select array_agg(t.job_id) into v_taken from taken as t;
  if cardinality(v_taken) = cardinality(take_unique_periods.job_ids) then
    return;
  end if;

  select u.kind, u.unique_key, p.until, p.job_id into v_job
  from unnest(take_unique_periods.kinds, take_unique_periods.unique_keys, take_unique_periods.job_ids)
    as u(kind, unique_key, job_id)
  left join pgwake.unique_periods as p on p.kind = u.kind and p.unique_key = u.unique_key
  where (u.job_id = any (v_taken)) is not true
  limit 1;
  perform pgwake.raise_unique_period(v_job.kind, v_job.unique_key, v_job.until, v_job.job_id,
    refused_by => 'unique_periods_pkey');
end
$$;

comment on function pgwake.take_unique_periods is
  'Internal: has the unique keys of new jobs stay taken until a time.';
revoke all on function pgwake.take_unique_periods from public;

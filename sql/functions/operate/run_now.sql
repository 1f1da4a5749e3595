-- Has a job that waits be due now, as update_jobs with run_at now: it runs when it has a
-- free worker, its parents have ended, and its queue and key have room.
--
-- Returns updated; unchanged, if it was due; or what it is and stays: running,
-- completed, failed, cancelled (the last two are retry_job's). Raises PW001 no such job.
-- Waits for whoever has the job locked. Rides jobs_live_pkey.
create or replace function pgwake.run_now(job_id bigint)
returns text
language plpgsql volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_outcome text;
begin
  loop
    select u.outcome into v_outcome
    from pgwake.update_jobs('{"run_at": "now"}', job_ids => array[run_now.job_id]) as u;
    exit when v_outcome is distinct from 'missed';  -- it came back at that moment
  end loop;
  if v_outcome is null or v_outcome = 'no_such_job' then
    perform pgwake.raise_outcome(run_now.job_id, 'no_such_job');
  end if;
  return v_outcome;
end
$$;

comment on function pgwake.run_now is
  'Has a job that waits be due now; returns updated, unchanged or what it is instead.';
revoke all on function pgwake.run_now from public;

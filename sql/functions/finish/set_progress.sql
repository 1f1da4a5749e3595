-- Notes how far a running job is: any JSON value of at most 4 KiB, or null; see
-- set_progresses.
--
-- Returns noted, cancel_requested (noted too; stop, and fail_job it) or skipped (the
-- row was locked at this moment: nothing was noted). Raises PW001 no such job, PW002
-- lease lost, PW003 null argument or too large. Rides jobs_live_pkey.
create or replace function pgwake.set_progress(job_id bigint, lease_id uuid, progress jsonb)
returns text
language plpgsql volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_outcome text := (pgwake.set_progresses(
    array[set_progress.job_id], array[set_progress.lease_id], array[set_progress.progress]))[1];
begin
  perform pgwake.raise_outcome(set_progress.job_id, v_outcome);
  return v_outcome;
end
$$;

comment on function pgwake.set_progress is
  'Notes how far a running job is; returns noted, cancel_requested or skipped.';
revoke all on function pgwake.set_progress from public;

-- end_jobs of one job.
create or replace function pgwake.end_job(
  job_id bigint, new_status text, reason text default null, message text default null,
  traceback text default null
)
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  perform pgwake.end_jobs(
    array[end_job.job_id], array[end_job.new_status], array[end_job.reason], array[end_job.message],
    array[end_job.traceback]);
end
$$;

comment on function pgwake.end_job is
  'Internal: moves a live job to the leaf of its final status.';
revoke all on function pgwake.end_job from public;

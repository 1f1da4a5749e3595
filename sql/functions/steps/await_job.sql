-- Has a running job wait for the end of another one, as await_event does for an event.
-- name: null is 'job ' and its id.
--
-- Where the other one has ended, outcome is here, and result has its status (completed,
-- failed or cancelled; null if there is no such job, or no longer) and its result.
create or replace function pgwake.await_job(
  job_id bigint,
  lease_id uuid,
  other_id bigint,
  timeout interval default null,
  name text default null,
  may_wait boolean default true,
  out outcome text,
  out result jsonb
)
returns record
language plpgsql volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  if await_job.other_id is null or await_job.other_id = await_job.job_id then
    perform pgwake.raise_invalid(
      format('other_id is %s', coalesce(await_job.other_id::text, 'null')), 'Pass the id of another job.');
  end if;
  select a.* into outcome, result
  from pgwake.await_answer(
    await_job.job_id, await_job.lease_id, coalesce(await_job.name, format('job %s', await_job.other_id)), null,
    await_job.other_id, await_job.timeout, await_job.may_wait) as a;
end
$$;

comment on function pgwake.await_job is
  'Has a running job wait for the end of another one; outcomes as of await_event.';
revoke all on function pgwake.await_job from public;

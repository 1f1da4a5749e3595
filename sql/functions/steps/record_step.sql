-- Records that a step of a running job is done, with a result if there is one: see
-- record_steps. Returns the result that is recorded: one of this name that was there
-- before counts.
--
-- Raises PW001 no such job, PW002 lease lost (nothing is recorded), PW003 null argument.
create or replace function pgwake.record_step(job_id bigint, lease_id uuid, name text, result jsonb default null)
returns jsonb
language plpgsql volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  perform pgwake.raise_outcome(
    record_step.job_id,
    (pgwake.record_steps(
      array[record_step.job_id], array[record_step.lease_id], array[record_step.name], array[record_step.result]))[1]);
  return (
    select s.result from pgwake.steps as s where s.job_id = record_step.job_id and s.name = record_step.name);
end
$$;

comment on function pgwake.record_step is
  'Records that a step of a running job is done; returns its result, the first one that was recorded.';
revoke all on function pgwake.record_step from public;

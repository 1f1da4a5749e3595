-- Records that a step of a running job is done, with a result if there is one: see
-- record_steps. Returns the result that is recorded: one of this name that was there
-- before counts.
--
-- Raises PW001 no such job, PW002 lease lost (nothing is recorded), PW003 null argument, a
-- name that can't be one, or that of a sleep or wait; 23514 as record_steps.
create or replace function pgwake.record_step(job_id bigint, lease_id uuid, name text, result jsonb default null)
returns jsonb
language plpgsql volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_held record;
begin
  v_held := pgwake.hold_stepping_job(record_step.job_id, record_step.lease_id, record_step.name, 'step');
  if v_held.kind is not null then
    return v_held.result;
  end if;
  perform pgwake.put_steps(
    array[record_step.job_id], array[record_step.name], 'step', array[record_step.result], null);
  return record_step.result;
end
$$;

comment on function pgwake.record_step is
  'Records that a step of a running job is done; returns its result, the first one that was recorded.';
revoke all on function pgwake.record_step from public;

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
  v_step record;
begin
  if num_nulls(record_step.job_id, record_step.lease_id, record_step.name) > 0 then
    perform pgwake.check_batch_arguments(array[record_step.job_id], array[record_step.lease_id]);
    perform pgwake.check_step_name(record_step.name);
  end if;
  perform pgwake.raise_outcome(
    record_step.job_id,
    (pgwake.record_steps(
      array[record_step.job_id], array[record_step.lease_id], array[record_step.name], array[record_step.result]))[1]);
  select s.kind, s.result into v_step
  from pgwake.steps as s
  where s.job_id = record_step.job_id and s.name = record_step.name;
  if v_step.kind <> 'step' then
    perform pgwake.raise_invalid(
      format('job %s has recorded %L as a %s', record_step.job_id, record_step.name, v_step.kind),
      'Use another name: one step has one name.');
  end if;
  return v_step.result;
end
$$;

comment on function pgwake.record_step is
  'Records that a step of a running job is done; returns its result, the first one that was recorded.';
revoke all on function pgwake.record_step from public;

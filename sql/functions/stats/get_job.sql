-- One job as an object, all columns, wherever it lies: looks in live, then failed, then
-- finished; steps are what it has recorded, as get_steps, waits_for the event that it waits
-- for, if any. The payload is null where
-- is_payload_dropped (see queues.drop_payloads). Raises PW001 no such job. Rides the
-- primary keys of the leaves.
create or replace function pgwake.get_job(job_id bigint)
returns jsonb
language plpgsql stable
security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
  v_job jsonb;
begin
  select to_jsonb(j) || case
    when j.has_steps then jsonb_build_object(
      'steps', pgwake.pack_steps(j.id), 'waits_for', (select w.event from pgwake.waits as w where w.job_id = j.id))
    else '{}' end
  into v_job
  from pgwake.jobs_live as j
  where j.id = get_job.job_id;
  if not found then
    select to_jsonb(j) into v_job from pgwake.jobs_failed as j where j.id = get_job.job_id;
  end if;
  if not found then
    select to_jsonb(j) || case when j.is_payload_dropped then '{"payload": null}' else '{}' end::jsonb
    into v_job
    from pgwake.jobs_finished as j
    where j.id = get_job.job_id;
  end if;
  if not found then
    perform pgwake.raise_outcome(get_job.job_id, 'no_such_job');
  end if;
  return v_job;
end
$$;

comment on function pgwake.get_job is 'One job as an object, wherever it lies.';
revoke all on function pgwake.get_job from public;

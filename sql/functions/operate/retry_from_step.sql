-- Retries a failed or cancelled job as retry_job does, of whose steps only the first
-- keep_steps stay done, in the order they were recorded (see get_steps): 0 none, null all.
--
-- Raises as retry_job, and PW003 for a number below 0.
create or replace function pgwake.retry_from_step(job_id bigint, keep_steps int)
returns void
language plpgsql volatile
security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
begin
  if retry_from_step.keep_steps < 0 then
    perform pgwake.raise_invalid(
      format('keep_steps is %s', retry_from_step.keep_steps), 'Use 0 for none, n for the first n, or null for all.');
  end if;
  perform pgwake.retry_job(retry_from_step.job_id);
  delete from pgwake.steps as s
  where s.job_id = retry_from_step.job_id and s.name = any (array(
    select o.name from pgwake.steps as o where o.job_id = retry_from_step.job_id
    order by o.place
    offset coalesce(retry_from_step.keep_steps, 1000)));  -- a job has no more
end
$$;

comment on function pgwake.retry_from_step is
  'Makes a failed or cancelled job pending again, with the first keep_steps of its steps done.';
revoke all on function pgwake.retry_from_step from public;

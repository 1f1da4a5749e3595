-- Forgets what a job waits for, and when that is to be looked at. Internal: the caller
-- holds the job's lock. A recheck that a claim has locked is left to it, so nobody is
-- waited for. Rides waits_pkey and rechecks_child_idx.
create or replace function pgwake.forget_wait(job_id bigint)
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
begin
  delete from pgwake.waits as w where w.job_id = forget_wait.job_id;
  if found then
    delete from pgwake.rechecks as r
    where r.ctid = any (array(
      select o.ctid from pgwake.rechecks as o where o.child_id = forget_wait.job_id for update skip locked));
  end if;
end
$$;

comment on function pgwake.forget_wait is
  'Internal: forgets what a job waits for.';
revoke all on function pgwake.forget_wait from public;

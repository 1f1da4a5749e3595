-- Treats running jobs as crashed, see crash_jobs, however it goes with single ones.
-- Internal: the caller holds the rows' locks.
--
-- A job that can't be moved, since a user's hook raises, is left as it is, with a
-- warning, and does not stop the others. Constraints that are deferred are checked here,
-- not at the commit, which would refuse all of them. Returns those that were moved.
create or replace function pgwake.try_crash_jobs(job_ids bigint[], message text)
returns bigint[]
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  v_id bigint;
  v_moved bigint[] := '{}';
begin
  perform pgwake.crash_jobs(try_crash_jobs.job_ids, try_crash_jobs.message);
  set constraints all immediate;
  set constraints all deferred;
  return try_crash_jobs.job_ids;
exception when others then
  foreach v_id in array try_crash_jobs.job_ids loop
    begin
      perform pgwake.crash_jobs(array[v_id], try_crash_jobs.message);
      set constraints all immediate;
      set constraints all deferred;
      v_moved := v_moved || v_id;
    exception when others then
      raise warning 'job % can not be given back: %', v_id, sqlerrm;
    end;
  end loop;
  return v_moved;
end
$$;

comment on function pgwake.try_crash_jobs is
  'Internal: treats jobs as crashed, those that a hook refuses left out.';
revoke all on function pgwake.try_crash_jobs from public;

-- A worker says that it has ended. Returns whether it was known. The upkeep is left to
-- the next one; its jobs are not looked at: see release_worker_jobs. Rides workers_pkey.
create or replace function pgwake.forget_worker(worker text)
returns boolean
language plpgsql volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  perform pgwake.leave_upkeep(forget_worker.worker);
  delete from pgwake.workers as w where w.name = forget_worker.worker;
  return found;
end
$$;

comment on function pgwake.forget_worker is
  'A worker says that it has ended; returns whether it was known.';
revoke all on function pgwake.forget_worker from public;

-- Finds running jobs whose lease has run out, whoever had them, and treats them as crashed; see crash_jobs.
--
-- Rests on the job's own lease, never on a registry of workers. At most max_jobs a call. Returns how many it took.
-- A job that can't be moved (a user's trigger raises) is left, with a warning, and does not stop the others.
-- Locks in id order, skips locked rows: one that is being ended can't be revived. Rides jobs_lease_idx, worker by worker.
create or replace function pgwake.sweep_expired_leases(max_jobs int default 1000)
returns int
language plpgsql volatile
set search_path = ''
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
declare
  v_now timestamptz := pgwake.now();
  v_worker text := '';
  v_ids bigint[];
  v_id bigint;
  v_count int := 0;
begin
  loop
    select j.claimed_by into v_worker
    from pgwake.jobs_live as j
    where j.status = 'running' and j.claimed_by > v_worker
    order by j.claimed_by
    limit 1;
    exit when not found or v_count >= sweep_expired_leases.max_jobs;

    select array_agg(due.id) into v_ids
    from (
      select j.id
      from pgwake.jobs_live as j
      where j.status = 'running' and j.claimed_by = v_worker and j.lease_expires_at < v_now
      order by j.id
      limit sweep_expired_leases.max_jobs - v_count
      for update skip locked
    ) as due;
    continue when v_ids is null;

    begin
      perform pgwake.crash_jobs(v_ids, format('the lease ran out; worker %s', v_worker));
      v_count := v_count + cardinality(v_ids);
    exception when others then
      foreach v_id in array v_ids loop
        begin
          perform pgwake.crash_jobs(array[v_id], format('the lease ran out; worker %s', v_worker));
          v_count := v_count + 1;
        exception when others then
          raise warning 'job % can not be swept: %', v_id, sqlerrm;
        end;
      end loop;
    end;
  end loop;
  return v_count;
end
$$;

comment on function pgwake.sweep_expired_leases is 'Treats running jobs whose lease has run out as crashed; returns how many.';
revoke all on function pgwake.sweep_expired_leases from public;

-- Finds running jobs whose lease has run out, whoever had them, and treats them as
-- crashed; see crash_jobs.
--
-- Rests on the job's own lease, never on a registry of workers. At most max_jobs a
-- call. Returns how many it took, by queue and kind. A job that can't be moved (a
-- user's trigger raises) is left, with a warning, and does not stop the others. Locks
-- in id order, skips locked rows: one that is being ended can't be revived. Rides
-- jobs_lease_idx, worker by worker.
create or replace function pgwake.sweep_expired_leases(max_jobs int default 1000)
returns table (queue text, kind text, job_count bigint)
language plpgsql volatile
set search_path = ''
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  v_now timestamptz := pgwake.now();
  v_worker text := '';
  v_message text;
  v_ids bigint[];
  v_id bigint;
  v_queues text[] := '{}';
  v_kinds text[] := '{}';
  v_found_queues text[];
  v_found_kinds text[];
begin
  loop
    select j.claimed_by into v_worker
    from pgwake.jobs_live as j
    where j.status = 'running' and j.claimed_by > v_worker
    order by j.claimed_by
    limit 1;
    exit when not found or cardinality(v_kinds) >= sweep_expired_leases.max_jobs;

    select array_agg(due.id), array_agg(due.queue), array_agg(due.kind)
    into v_ids, v_found_queues, v_found_kinds
    from (
      select j.id, j.queue, j.kind
      from pgwake.jobs_live as j
      where j.status = 'running' and j.claimed_by = v_worker and j.lease_expires_at < v_now
      order by j.id
      limit sweep_expired_leases.max_jobs - cardinality(v_kinds)
      for update skip locked
    ) as due;
    continue when v_ids is null;

    v_message := format('the lease ran out; worker %s', v_worker);
    begin
      perform pgwake.crash_jobs(v_ids, v_message);
      v_queues := v_queues || v_found_queues;
      v_kinds := v_kinds || v_found_kinds;
    exception when others then
      foreach v_id in array v_ids loop
        begin
          perform pgwake.crash_jobs(array[v_id], v_message);
          v_queues := v_queues || v_found_queues[array_position(v_ids, v_id)];
          v_kinds := v_kinds || v_found_kinds[array_position(v_ids, v_id)];
        exception when others then
          raise warning 'job % can not be swept: %', v_id, sqlerrm;
        end;
      end loop;
    end;
  end loop;
  return query
  select u.queue, u.kind, count(*) from unnest(v_queues, v_kinds) as u(queue, kind) group by u.queue, u.kind;
end
$$;

comment on function pgwake.sweep_expired_leases is
  'Treats running jobs whose lease has run out as crashed; returns how many, by queue '
  'and kind.';
revoke all on function pgwake.sweep_expired_leases from public;

-- For diagnose: leases that ran out five minutes ago and were not swept, and leases that
-- will not run out, since somebody has written them by hand.
--
-- lease_not_swept  error  workers sweep each second, but only once they have been up
--                         for a third of their lease
-- lease_endless    error  two days or more from now, where a day is the longest: nobody
--                         sweeps it
--
-- Steps through jobs_lease_idx from worker to worker, for a tenth of a second at most:
-- what an old snapshot pins stands between.
create or replace function pgwake.diagnose_leases()
returns setof pgwake.finding
language plpgsql stable
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
declare
  v_now timestamptz := pgwake.now();
  v_until timestamptz := clock_timestamp() + interval '100 ms';
  v_queue text := '';
  v_worker text := '';
  v_expires_at timestamptz;
  v_count int := 0;
begin
  while v_count < 10 and clock_timestamp() < v_until loop
    select j.queue, j.claimed_by, j.lease_expires_at into v_queue, v_worker, v_expires_at
    from pgwake.jobs_live as j
    where j.status = 'running' and (j.queue, j.claimed_by) > (v_queue, v_worker)
    order by j.queue, j.claimed_by, j.lease_expires_at
    limit 1;
    exit when not found;
    return query
    select 'lease_endless', 'error', v_worker,
      format('the lease of job %s, by the worker %s in the queue %s, ends at %s: nobody will sweep it', j.id,
        pgwake.say_name(v_worker), pgwake.say_name(v_queue), j.lease_expires_at),
      format('update pgwake.jobs_live set lease_expires_at = pgwake.now() where id = %s;  -- then it is swept', j.id),
      null::double precision
    from (
      select l.id, l.lease_expires_at
      from pgwake.jobs_live as l
      where l.status = 'running' and l.queue = v_queue and l.claimed_by = v_worker
      order by l.lease_expires_at desc
      limit 1
    ) as j
    where j.lease_expires_at > v_now + interval '2 days';
    if found then
      v_count := v_count + 1;
    end if;
    continue when v_expires_at >= v_now - interval '5 minutes';
    v_count := v_count + 1;
    return query
    select 'lease_not_swept', 'error', v_worker,
      format('a lease of the worker %s in the queue %s ran out %s ago, and nobody has swept it',
        pgwake.say_name(v_worker), pgwake.say_name(v_queue), date_trunc('second', v_now - v_expires_at)),
      'select pgwake.maintain(''sweep'');  -- as workers do each second; it warns of a job that a trigger keeps',
      extract(epoch from v_now - v_expires_at)::double precision;
  end loop;
end
$$;

comment on function pgwake.diagnose_leases is
  'Internal: for diagnose, leases that ran out and were not swept.';
revoke all on function pgwake.diagnose_leases from public;

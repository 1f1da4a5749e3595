-- Finds running jobs whose lease has run out, whoever had them, and treats them as
-- crashed; see crash_jobs.
--
-- Rests on the job's own lease, never on a registry of workers. At most max_jobs a
-- call. Returns how many it took, by queue and kind, and how many of them are failed or
-- cancelled by that. A job that can't be moved (a user's trigger raises) is left, with a
-- warning, and does not stop the others; see try_crash_jobs. Skips locked rows: one that
-- is being ended can't be revived. A job that was renewed while somebody had it locked is
-- kept: see pgwake.missed_renewals. Rides jobs_lease_idx, queue by queue and worker by
-- worker, those first whose lease ran out first: in order of id it would read them all.
--
-- Under an old snapshot it wades through an entry for every job that was claimed since.
-- A session in which that were more than 5,000, or that left more than 100 jobs, does
-- not sweep again before 20 times the time it took, or a minute: the setting
-- pgwake.sweep_at says when.
create or replace function pgwake.sweep_expired_leases(max_jobs int default 1000)
returns table (queue text, kind text, job_count bigint, failed_count bigint, cancelled_count bigint)
language plpgsql volatile
security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  v_now timestamptz := pgwake.now();
  v_began_at timestamptz := clock_timestamp();
  v_sweep_at timestamptz := nullif(current_setting('pgwake.sweep_at', true), '');
  v_read bigint;
  v_queue text := '';
  v_worker text := '';
  v_ids bigint[];
  v_kept bigint[];
  v_moved bigint[];
  v_stuck bigint[] := '{}';
  v_taken bigint[] := '{}';
  v_queues text[] := '{}';
  v_kinds text[] := '{}';
  v_found_queues text[];
  v_found_kinds text[];
begin
  if v_sweep_at between v_began_at and v_began_at + interval '1 minute' then
    return;
  end if;
  v_read := pg_stat_get_xact_tuples_returned('pgwake.jobs_lease_idx'::regclass);
  loop
    select j.queue, j.claimed_by into v_queue, v_worker
    from pgwake.jobs_live as j
    where j.status = 'running' and (j.queue, j.claimed_by) > (v_queue, v_worker)
    order by j.queue, j.claimed_by
    limit 1;
    exit when not found or cardinality(v_kinds) >= sweep_expired_leases.max_jobs;

    loop
      select array_agg(due.id), array_agg(due.queue), array_agg(due.kind)
      into v_ids, v_found_queues, v_found_kinds
      from (
        select j.id, j.queue, j.kind
        from pgwake.jobs_live as j
        where j.status = 'running' and j.queue = v_queue and j.claimed_by = v_worker and j.lease_expires_at < v_now
          and j.id <> all (v_stuck)
        order by j.lease_expires_at
        limit sweep_expired_leases.max_jobs - cardinality(v_kinds)
        for update skip locked
      ) as due;
      exit when v_ids is null;

      -- By a later snapshot than the locks: a renewal may have come while somebody else had one.
      with kept as (
        update pgwake.jobs_live as j
        set lease_expires_at = r.expires_at
        from pgwake.missed_renewals as r
        where j.id = any (v_ids) and r.job_id = j.id and r.lease_id = j.lease_id and r.expires_at >= v_now
        returning j.id
      )
      select coalesce(array_agg(k.id), '{}') into v_kept from kept as k;
      v_moved := pgwake.try_crash_jobs(
        array(select u.id from unnest(v_ids) as u(id) where u.id <> all (v_kept)),
        format('the lease ran out; worker %s', v_worker));
      select v_taken || coalesce(array_agg(u.id), '{}'), v_queues || coalesce(array_agg(u.queue), '{}'),
        v_kinds || coalesce(array_agg(u.kind), '{}')
      into v_taken, v_queues, v_kinds
      from unnest(v_ids, v_found_queues, v_found_kinds) as u(id, queue, kind)
      where u.id = any (v_moved);
      exit when cardinality(v_moved) = cardinality(v_ids);
      v_stuck := v_stuck || array(select u.id from unnest(v_ids) as u(id) where u.id <> all (v_moved || v_kept));
    end loop;
  end loop;
  if cardinality(v_stuck) > 100
    or pg_stat_get_xact_tuples_returned('pgwake.jobs_lease_idx'::regclass) - v_read > 5000
  then
    v_sweep_at := clock_timestamp() + least(20 * (clock_timestamp() - v_began_at), interval '1 minute');
    perform set_config('pgwake.sweep_at', v_sweep_at::text, false);
  end if;
  return query select c.* from pgwake.count_crashed(v_taken, v_queues, v_kinds) as c;
end
$$;

comment on function pgwake.sweep_expired_leases is
  'Treats running jobs whose lease has run out as crashed; returns how many, by queue '
  'and kind, and what has become of them.';
revoke all on function pgwake.sweep_expired_leases from public;

-- Raises PW007 if a queue has no room for jobs that have just been inserted: if more than
-- max_pending of its jobs would be pending or waiting. Internal, for after_insert_jobs,
-- before it counts them.
--
-- Costs the same at any backlog: it takes the sums of the last fold, and what at most
-- 1,000 statements have counted since. So beyond max_pending come what open transactions
-- insert, and under a load of more than 1,000 statements a fold what comes until the next.
-- Where there are as many and no worker has folded for half a minute, the pending jobs
-- themselves are looked at, up to max_pending, from the newest: without workers nobody
-- leaves dead rows there. Rides count_folds_pkey, count_sums_pkey, counts_xid_idx,
-- upkeep_turns_pkey, jobs_claim_idx. Stable, so that all of it is one snapshot's.
create or replace function pgwake.check_max_pending(queue text, new_rows bigint, max_pending int)
returns void
language plpgsql stable
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set enable_sort = off
set jit = off
as $$
declare
  v_fold pgwake.count_folds;
  v_rows bigint;
  v_new_rows bigint;
  v_read int;
  v_turn_at timestamptz;
begin
  select f.* into v_fold from pgwake.count_folds as f order by f.id desc limit 1;
  select coalesce(sum(s.live_rows - s.running_rows), 0) into v_rows
  from pgwake.count_sums as s
  where s.fold = v_fold.id and s.queue = check_max_pending.queue;

  -- as in count_rows, but not all of it
  select coalesce(sum(coalesce(c.live_rows, 0) - coalesce(c.running_rows, 0))
    filter (where c.queue = check_max_pending.queue), 0), count(*)
  into v_new_rows, v_read
  from (
    select n.queue, n.live_rows, n.running_rows
    from (
      select n.queue, n.live_rows, n.running_rows
      from pgwake.counts as n
      where n.xid >= coalesce(
        case when v_fold.next_xid <= pg_snapshot_xmax(pg_current_snapshot()) then v_fold.next_xid end, '0')
      order by n.xid
      limit 1000
    ) as n
    union all
    select o.queue, o.live_rows, o.running_rows
    from pgwake.counts as o
    where o.xid = any (v_fold.open_xids) and o.xid < v_fold.next_xid
  ) as c;
  v_rows := v_rows + v_new_rows + check_max_pending.new_rows;

  if v_read >= 1000 and v_rows <= check_max_pending.max_pending then
    select t.at into v_turn_at from pgwake.upkeep_turns as t order by t.id desc limit 1;
    if (v_turn_at > pgwake.now() - interval '30 seconds') is not true then
      select count(*) into v_rows
      from (
        select
        from pgwake.jobs_live as j
        where j.queue = check_max_pending.queue and j.status = 'pending'
        order by least(j.crash_count, 2) * 201 - j.priority desc, j.run_at desc, j.id desc
        limit check_max_pending.max_pending + 1
      ) as p;
    end if;
  end if;

  if v_rows > check_max_pending.max_pending then
    raise exception using
      errcode = 'PW007',
      message = format('the queue %s is full: it takes %s jobs that are pending or waiting (max_pending)',
        check_max_pending.queue, check_max_pending.max_pending),
      detail = format('jobs to be added: %s', check_max_pending.new_rows),
      hint = 'Nothing has been added. Try again when some of its jobs have run, or have max_pending raised.';
  end if;
end
$$;

comment on function pgwake.check_max_pending is
  'Internal: raises PW007 if a queue has no room for new jobs.';
revoke all on function pgwake.check_max_pending from public;

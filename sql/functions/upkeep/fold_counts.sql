-- Folds pgwake.counts: what has been appended since the last fold, and the sums of
-- that fold, become sums by queue and half minute, those older than six minutes by
-- queue. The sums stay as they are in every snapshot. Returns how many rows it took in.
--
-- Does nothing while there is less to take in than a quarter of the sums, so that a
-- row is written anew at most four times for each one appended. Its own transaction's
-- rows are left to the next fold. Another fold is waited for (advisory lock 2).
--
-- Rides counts_xid_idx, count_sums_pkey, count_folds_pkey.
create or replace function pgwake.fold_counts()
returns int
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
  v_old_at timestamptz := pgwake.now() - interval '6 minutes';
  v_last bigint;
  v_sums bigint;
  v_count bigint;
begin
  perform pg_advisory_xact_lock(1885828971, 2);
  select coalesce(max(f.id), 0) into v_last from pgwake.count_folds as f;
  select count(*) filter (where r.counts_tid is null),
    count(*) filter (where r.counts_tid is not null or (r.at < v_old_at and r.at > '-infinity'))
  into v_sums, v_count
  from pgwake.count_rows as r;
  if v_count = 0 or v_count < v_sums / 4 then
    return 0;
  end if;

  -- One statement, so that what is deleted is what its snapshot sees, and no more.
  with taken as (
    delete from pgwake.counts as c
    where c.ctid = any (array(select r.counts_tid from pgwake.count_rows as r where r.counts_tid is not null))
      and c.xid <> pg_current_xact_id()
    returning c.*
  ),
  old as (
    delete from pgwake.count_sums as s where s.fold = v_last returning s.*
  ),
  marked as (
    delete from pgwake.count_folds as f where f.id = v_last
  ),
  mark as (
    insert into pgwake.count_folds (id, next_xid, open_xids)
    select v_last + 1, pg_snapshot_xmax(s.now),
      array(select pg_snapshot_xip(s.now)) || pg_current_xact_id()
    from pg_current_snapshot() as s(now)
  ),
  leaves as (
    insert into pgwake.count_leaves as l (finished_slot, queue, completed_rows, cancelled_rows)
    select t.finished_slot, t.queue, coalesce(sum(t.completed_rows), 0), coalesce(sum(t.cancelled_rows), 0)
    from taken as t
    where t.finished_slot is not null
    group by t.finished_slot, t.queue
    on conflict (finished_slot, queue) do update
    set completed_rows = l.completed_rows + excluded.completed_rows,
      cancelled_rows = l.cancelled_rows + excluded.cancelled_rows
  ),
  every as (
    select t.queue, date_bin('30 seconds', t.at, '2000-01-01 00:00:00+00') as at, 1 as taken,
      t.enqueued, t.completed, t.failed, t.cancelled, t.queue_ms, t.execution_ms,
      t.live_rows, t.waiting_rows, t.running_rows, t.failed_rows, t.completed_rows, t.cancelled_rows, t.retried
    from taken as t
    union all
    select o.queue, o.at, case when o.at < v_old_at and o.at > '-infinity' then 1 end,
      o.enqueued, o.completed, o.failed, o.cancelled, o.queue_ms, o.execution_ms,
      o.live_rows, o.waiting_rows, o.running_rows, o.failed_rows, o.completed_rows, o.cancelled_rows, o.retried
    from old as o
  ),
  summed as (
    insert into pgwake.count_sums
      (fold, queue, at, enqueued, completed, failed, cancelled, queue_ms, execution_ms,
       live_rows, waiting_rows, running_rows, failed_rows, completed_rows, cancelled_rows, retried)
    select v_last + 1, e.queue, case when e.at < v_old_at then '-infinity' else e.at end,
      coalesce(sum(e.enqueued), 0), coalesce(sum(e.completed), 0), coalesce(sum(e.failed), 0),
      coalesce(sum(e.cancelled), 0), coalesce(sum(e.queue_ms), 0), coalesce(sum(e.execution_ms), 0),
      coalesce(sum(e.live_rows), 0), coalesce(sum(e.waiting_rows), 0), coalesce(sum(e.running_rows), 0),
      coalesce(sum(e.failed_rows), 0), coalesce(sum(e.completed_rows), 0), coalesce(sum(e.cancelled_rows), 0),
      coalesce(sum(e.retried), 0)
    from every as e
    group by 2, 3
  )
  select count(e.taken) into v_count from every as e;
  return v_count;
end
$$;

comment on function pgwake.fold_counts is
  'Internal: folds pgwake.counts; returns how many rows it took in.';
revoke all on function pgwake.fold_counts from public;

-- What monitoring shows of the whole database, in one statement: first a row without a
-- queue, then a row a queue that has ever been used, has policy or has a live worker.
--
-- The first row says how late the schedule is that should have fired longest ago
-- (schedule_lag, 0 if none is late), how long somebody has pinned the dead rows of this
-- database (oldest_snapshot_age, 0 if nobody has; see oldest_snapshot_at for whom it can
-- see), how full the server's queue of notifications is, from 0 to 1
-- (notification_queue_usage), and how many live workers there are (worker_count); all
-- else in it is null. The other rows have null in the first three of these. Their
-- worker_count is of those that report the queue, the rest is as get_queue_stats has it.
--
-- Its columns stay: a further figure has a function of its own, as count_retries().
--
-- To be cheap, it divides pending jobs less exactly than get_queue_stats into those that
-- are due and those that are not: where a queue has more than 2,000 of each, a number
-- that is shared by the queues, down to 20, the sum is exact and the division is that of
-- all queues together. Reads only, so it answers on a standby too.
create or replace function pgwake.get_metrics()
returns table (
  queue text,
  pending_count bigint,
  scheduled_count bigint,
  waiting_count bigint,
  running_count bigint,
  failed_count bigint,
  oldest_pending_age interval,
  avg_queue_time_ms double precision,
  avg_execution_time_ms double precision,
  enqueued_total bigint,
  completed_total bigint,
  failed_total bigint,
  worker_count bigint,
  is_paused boolean,
  schedule_lag interval,
  oldest_snapshot_age interval,
  notification_queue_usage double precision
)
language plpgsql stable
security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
as $$
#variable_conflict use_column
declare
  v_now timestamptz := pgwake.now();
  v_exact_rows constant text := coalesce(current_setting('pgwake.exact_rows', true), '');
  v_queues bigint;
begin
  select greatest(max(v_now - coalesce(s.next_at, greatest(s.updated_at, s.starts_at))), '0') into schedule_lag
  from pgwake.schedules as s
  where not s.is_paused;
  oldest_snapshot_age := greatest(clock_timestamp() - pgwake.oldest_snapshot_at(), '0');
  notification_queue_usage := pg_notification_queue_usage();
  select count(*) into worker_count from pgwake.workers as w where pgwake.is_live(w.seen_at);
  return next;

  select count(distinct s.queue) into v_queues
  from pgwake.count_sums as s
  where s.fold = (select max(f.id) from pgwake.count_folds as f);
  perform set_config('pgwake.exact_rows', greatest(2000 / greatest(v_queues, 1), 20)::text, true);

  return query
  select coalesce(s.queue, w.queue), coalesce(s.pending_count, 0), coalesce(s.scheduled_count, 0),
    coalesce(s.waiting_count, 0), coalesce(s.running_count, 0), coalesce(s.failed_count, 0),
    s.oldest_pending_age, s.avg_queue_time_ms, s.avg_execution_time_ms,
    coalesce(s.enqueued_total, 0), coalesce(s.completed_total, 0), coalesce(s.failed_total, 0),
    coalesce(w.worker_count, 0), coalesce(q.paused_until > v_now, false),
    null::interval, null::interval, null::double precision
  from pgwake.sum_counts(null) as s
  full join (
    select u.queue, count(distinct v.name) as worker_count
    from pgwake.workers as v
    cross join unnest(v.queues) as u(queue)
    where pgwake.is_live(v.seen_at)
    group by u.queue
  ) as w on w.queue = s.queue collate "C"
  left join pgwake.queues as q on q.name = s.queue collate "C"
  order by coalesce(s.queue, w.queue) collate "C";
  perform set_config('pgwake.exact_rows', v_exact_rows, true), set_config('pgwake.later_share', '', true);
end
$$;

comment on function pgwake.get_metrics is
  'What monitoring shows of the whole database: a row without a queue, then a row a queue.';
revoke all on function pgwake.get_metrics from public;

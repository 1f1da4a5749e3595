-- What stands in the queues and what has gone through them: a row a queue that has ever
-- been used or has policy; of one queue, or of all.
--
-- *_count are rows now: pending_count is due, scheduled_count not yet due. *_total
-- count since the installation and never fall. oldest_pending_age is how long the
-- longest-due job has been due. The averages are over the jobs completed in the last
-- five minutes (give or take half a minute), null if there were none.
--
-- All is exact, but for one thing: of a queue with more than 10,000 jobs due and more
-- than 10,000 not yet due the sum of both is exact and the division is estimated, and
-- is_estimate says so. Asked of all queues, where these are more than 25 and have more
-- than 500,000 pending jobs, it is estimated from 250,000 divided by the queues on, at
-- least 20: asked of one queue it is exact as ever.
--
-- Counts no jobs: every statement that inserts, claims or ends some writes down how
-- many rows came and went by it, in its own transaction; the sum of these counts is
-- what stands there, in any snapshot. So it costs the same at ten million jobs,
-- pending, failed or kept, as at a hundred. Reads only, so it answers on a standby too.
--
-- Rides the indexes of count_rows, and for queues with pending jobs jobs_claim_idx: see
-- count_scheduled. What an old snapshot keeps of claimed jobs at the head of that index
-- is the one thing that makes it slower.
create or replace function pgwake.get_queue_stats(queue text default null)
returns table (
  queue text,
  pending_count bigint,
  scheduled_count bigint,
  waiting_count bigint,
  running_count bigint,
  completed_count bigint,
  failed_count bigint,
  cancelled_count bigint,
  oldest_pending_age interval,
  avg_queue_time_ms double precision,
  avg_execution_time_ms double precision,
  enqueued_total bigint,
  completed_total bigint,
  failed_total bigint,
  is_estimate boolean
)
language sql stable
security definer
set search_path = pg_catalog, pg_temp
as $$
  select s.* from pgwake.sum_counts(get_queue_stats.queue) as s
$$;

comment on function pgwake.get_queue_stats is
  'What stands in the queues and what has gone through them, a row a queue.';
revoke all on function pgwake.get_queue_stats from public;

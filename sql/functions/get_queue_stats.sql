-- What stands in the queues and what has gone through them: a row a queue that has ever
-- been used or has policy; of one queue, or of all.
--
-- *_count are rows now: pending_count is due, scheduled_count not yet due. *_total
-- count since the installation and never fall. oldest_pending_age is how long the
-- longest-due job has been due. The averages are over the jobs completed in the last
-- five minutes, null if there were none. is_estimate says that a count is estimated.
-- Reads only, so it answers on a standby too.
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
set search_path = ''
as $$
  with live as (
    select j.queue,
      count(*) filter (where j.status = 'pending' and j.run_at <= pgwake.now()) as pending,
      count(*) filter (where j.status = 'pending' and j.run_at > pgwake.now()) as scheduled,
      count(*) filter (where j.status = 'waiting') as waiting,
      count(*) filter (where j.status = 'running') as running,
      min(j.run_at) filter (where j.status = 'pending') as oldest_run_at
    from pgwake.jobs_live as j
    where get_queue_stats.queue is null or j.queue = get_queue_stats.queue
    group by j.queue
  ),
  failed as (
    select j.queue, count(*) as failed
    from pgwake.jobs_failed as j
    where get_queue_stats.queue is null or j.queue = get_queue_stats.queue
    group by j.queue
  ),
  finished as (
    select j.queue,
      count(*) filter (where j.status = 'completed') as completed,
      count(*) filter (where j.status = 'cancelled') as cancelled
    from pgwake.jobs_finished as j
    where get_queue_stats.queue is null or j.queue = get_queue_stats.queue
    group by j.queue
  ),
  tallied as (
    select t.queue, sum(t.enqueued) as enqueued, sum(t.completed) as completed, sum(t.failed) as failed,
      sum(t.queue_ms) filter (where t.at > pgwake.now() - interval '5 minutes') as queue_ms,
      sum(t.execution_ms) filter (where t.at > pgwake.now() - interval '5 minutes') as execution_ms,
      nullif(sum(t.completed) filter (where t.at > pgwake.now() - interval '5 minutes'), 0)::bigint as recent
    from pgwake.tallies as t
    where get_queue_stats.queue is null or t.queue = get_queue_stats.queue
    group by t.queue
  ),
  names as (
    select q.name as queue from pgwake.queues as q
    where get_queue_stats.queue is null or q.name = get_queue_stats.queue
    union select l.queue from live as l
    union select f.queue from failed as f
    union select f.queue from finished as f
    union select t.queue from tallied as t
  )
  select
    n.queue,
    coalesce(l.pending, 0),
    coalesce(l.scheduled, 0),
    coalesce(l.waiting, 0),
    coalesce(l.running, 0),
    coalesce(d.completed, 0),
    coalesce(f.failed, 0),
    coalesce(d.cancelled, 0),
    case when l.oldest_run_at <= pgwake.now() then pgwake.now() - l.oldest_run_at end,
    t.queue_ms / t.recent,
    t.execution_ms / t.recent,
    coalesce(t.enqueued, 0)::bigint,
    coalesce(t.completed, 0)::bigint,
    coalesce(t.failed, 0)::bigint,
    false
  from names as n
  left join live as l on l.queue = n.queue
  left join failed as f on f.queue = n.queue
  left join finished as d on d.queue = n.queue
  left join tallied as t on t.queue = n.queue
  order by n.queue
$$;

comment on function pgwake.get_queue_stats is
  'What stands in the queues and what has gone through them, a row a queue.';
revoke all on function pgwake.get_queue_stats from public;

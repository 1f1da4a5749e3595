-- The rows of get_queue_stats, in PL/pgSQL, so that they are not planned anew at each
-- call before PostgreSQL 18; there no parameter can have the name of a column. Internal.
--
-- Of all queues, where many jobs are pending, count_scheduled counts less far: at most
-- 250,000 entries of what is due and as many of what is not, unless the caller has said
-- (pgwake.exact_rows). By the last fold's sums: near enough, and read in 5 ms.
create or replace function pgwake.sum_counts(of_queue text)
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
language plpgsql stable
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  v_now timestamptz := pgwake.now();
  v_is_bounded boolean := false;
begin
  if sum_counts.of_queue is null and coalesce(current_setting('pgwake.exact_rows', true), '') = '' then
    select set_config('pgwake.exact_rows', greatest(250000 / count(distinct s.queue), 20)::text, true) is not null
    into v_is_bounded
    from pgwake.count_sums as s
    where s.fold = (select max(f.id) from pgwake.count_folds as f)
    having count(distinct s.queue) > 25 and sum(s.live_rows - s.waiting_rows - s.running_rows) > 500000;
  end if;

  return query
  with summed as materialized (
    select r.queue, sum(r.enqueued) as enqueued, sum(r.completed) as completed, sum(r.failed) as failed,
      (coalesce(sum(r.live_rows), 0) - coalesce(sum(r.running_rows), 0) - coalesce(sum(r.waiting_rows), 0))::bigint
        as pending_rows,
      sum(r.waiting_rows) as waiting_rows, sum(r.running_rows) as running_rows,
      sum(r.completed_rows) as completed_rows, sum(r.failed_rows) as failed_rows,
      sum(r.cancelled_rows) as cancelled_rows,
      sum(r.queue_ms) filter (where r.at > v_now - interval '5 minutes') as queue_ms,
      sum(r.execution_ms) filter (where r.at > v_now - interval '5 minutes') as execution_ms,
      nullif(sum(r.completed) filter (where r.at > v_now - interval '5 minutes'), 0)::bigint as recent
    from pgwake.count_rows as r
    where sum_counts.of_queue is null or r.queue = sum_counts.of_queue
    group by r.queue
  ),
  policies as (
    select q.name
    from pgwake.queues as q
    where sum_counts.of_queue is null or q.name = sum_counts.of_queue
  )
  select
    coalesce(s.queue, q.name),
    greatest(s.pending_rows - coalesce(p.scheduled_rows, 0), 0),
    greatest(least(s.pending_rows, p.scheduled_rows), 0),
    greatest(s.waiting_rows, 0)::bigint,
    greatest(s.running_rows, 0)::bigint,
    greatest(s.completed_rows, 0)::bigint,
    greatest(s.failed_rows, 0)::bigint,
    greatest(s.cancelled_rows, 0)::bigint,
    v_now - p.oldest_run_at,
    s.queue_ms / s.recent,
    s.execution_ms / s.recent,
    coalesce(s.enqueued, 0)::bigint,
    coalesce(s.completed, 0)::bigint,
    coalesce(s.failed, 0)::bigint,
    coalesce(p.is_estimate, false)
  from summed as s
  full join policies as q on q.name = s.queue
  -- strict: not called for null
  left join lateral pgwake.count_scheduled(s.queue, nullif(greatest(s.pending_rows, 0), 0)) as p on true
  order by 1;
  if v_is_bounded then
    perform set_config('pgwake.exact_rows', '', true), set_config('pgwake.later_share', '', true);
  end if;
end
$$;

comment on function pgwake.sum_counts is 'Internal: the rows of get_queue_stats.';
revoke all on function pgwake.sum_counts from public;

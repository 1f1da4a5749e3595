-- Counts the rows of jobs, and corrects pgwake.counts where they say otherwise.
-- Returns how many queues' counts were wrong.
--
-- The functions and the triggers on pgwake.jobs keep the counts right; what a trigger
-- does not see makes them drift: a statement that names a leaf, logical replication, a
-- raised session_replication_role, an emptied pgwake.counts. Reads the live jobs, the
-- dead letters and the finished ones from end to end, each only if they have at most
-- max_bytes; null: whatever they have. Locks nothing: one statement's snapshot shows
-- both the rows and what was counted of them.
create or replace function pgwake.recount_jobs(max_bytes bigint default 67108864)
returns int
language plpgsql volatile
security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
declare
  -- Asked once: in the statement the sizes, which are volatile, would be asked for with each row.
  v_counts_live constant boolean :=
    (pg_relation_size('pgwake.jobs_live') <= recount_jobs.max_bytes) is not false;
  v_counts_failed constant boolean :=
    (pg_relation_size('pgwake.jobs_failed') <= recount_jobs.max_bytes) is not false;
  v_counts_finished constant boolean := (
    select (sum(pg_relation_size(t.relid)) <= recount_jobs.max_bytes) is not false
    from pg_partition_tree('pgwake.jobs_finished') as t);
  v_count int;
begin
  with counted as (
    select j.queue, null::smallint as finished_slot, count(*) as live,
      count(*) filter (where j.status = 'waiting') as waiting,
      count(*) filter (where j.status = 'running') as running,
      0 as failed, 0 as completed, 0 as cancelled
    from pgwake.jobs_live as j
    where v_counts_live
    group by j.queue
    union all
    select r.queue, null, -sum(r.live_rows), -sum(r.waiting_rows), -sum(r.running_rows), 0, 0, 0
    from pgwake.count_rows as r
    where v_counts_live
    group by r.queue
    union all
    select j.queue, null, 0, 0, 0, count(*), 0, 0
    from pgwake.jobs_failed as j
    where v_counts_failed
    group by j.queue
    union all
    select r.queue, null, 0, 0, 0, -sum(r.failed_rows), 0, 0
    from pgwake.count_rows as r
    where v_counts_failed
    group by r.queue
    union all
    select j.queue, j.finished_slot, 0, 0, 0, 0,
      count(*) filter (where j.status = 'completed'), count(*) filter (where j.status = 'cancelled')
    from pgwake.jobs_finished as j
    where v_counts_finished
    group by j.queue, j.finished_slot
    union all
    select l.queue, l.finished_slot, 0, 0, 0, 0, -l.completed_rows, -l.cancelled_rows
    from pgwake.count_leaves as l
    where v_counts_finished
    union all
    select r.queue, r.finished_slot, 0, 0, 0, 0, -r.completed_rows, -r.cancelled_rows
    from pgwake.count_rows as r
    where r.finished_slot is not null and v_counts_finished
  ),
  wrong as (
    select c.queue, c.finished_slot, nullif(sum(c.live), 0) as live, nullif(sum(c.waiting), 0) as waiting,
      nullif(sum(c.running), 0) as running, nullif(sum(c.failed), 0) as failed,
      nullif(sum(c.completed), 0) as completed, nullif(sum(c.cancelled), 0) as cancelled
    from counted as c
    group by c.queue, c.finished_slot
  ),
  corrected as (
    insert into pgwake.counts
      (queue, at, live_rows, waiting_rows, running_rows, failed_rows, completed_rows, cancelled_rows,
       finished_slot)
    select w.queue, pgwake.now(), w.live, w.waiting, w.running, w.failed, w.completed, w.cancelled,
      w.finished_slot
    from wrong as w
    where num_nonnulls(w.live, w.waiting, w.running, w.failed, w.completed, w.cancelled) > 0
    returning queue
  )
  select count(distinct c.queue) into v_count from corrected as c;
  return v_count;
end
$$;

comment on function pgwake.recount_jobs is
  'Corrects the counts of get_queue_stats by counting; returns how many queues were wrong.';
revoke all on function pgwake.recount_jobs from public;

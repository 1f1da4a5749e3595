-- From schema 1: all tables can be published, workers report their slots, children are
-- found that nobody would look at, the one text index of the server's collation gets the
-- collation "C", one index tells which queues' jobs concern somebody when they end,
-- queues can drop the payloads of completed jobs and refuse more than so many, jobs have
-- steps and expire, a claimed job stays on its page, an owner's UPDATE is compared with
-- what was before, concurrency keys can have rates, and kinds limits, and retries are
-- counted.
do $migration$
begin
  if current_setting('pgwake.installed_version')::int <> 1 then
    return;
  end if;
  perform pgwake.lock_tables(
    'pgwake.jobs', 'pgwake.queues', 'pgwake.kinds', 'pgwake.concurrency_limits', 'pgwake.rechecks', 'pgwake.counts',
    'pgwake.count_sums', 'pgwake.workers');

  alter table pgwake.rechecks replica identity full;
  alter table pgwake.counts replica identity full;
  alter table pgwake.workers add column slots int;
  create index jobs_children_idx on pgwake.jobs_live (id) where has_parents_left;
  drop index pgwake.queues_status_events_idx;
  create index queues_status_events_idx on pgwake.queues (status_events collate "C", name)
    where status_events <> 'watched';
  drop index pgwake.queues_max_running_idx;
  drop index pgwake.queues_webhook_idx;
  alter table pgwake.queues add column drop_payloads boolean not null default false;
  create index queues_ends_idx on pgwake.queues (name)
    where max_running is not null or webhook is not null or status_events <> 'watched' or drop_payloads;
  alter table pgwake.jobs add column is_payload_dropped boolean, add column has_steps boolean, add column steps jsonb,
    add column expires_at timestamptz, add column unique_until timestamptz;
  create index jobs_expires_idx on pgwake.jobs_live (expires_at) where expires_at is not null and attempt = 0;
  alter table pgwake.jobs_live set (fillfactor = 40);
  drop trigger jobs_before_insert on pgwake.jobs;
  create trigger jobs_before_insert
    before insert on pgwake.jobs
    for each row when (new.concurrency_key is not null or new.depends_on is not null or new.expires_at is not null)
    execute function pgwake.before_insert_jobs();
  drop trigger jobs_after_update_to on pgwake.jobs;
  create trigger jobs_after_update_to
    after update on pgwake.jobs
    referencing old table as replaced new table as changed
    for each statement execute function pgwake.after_change_jobs('1');
  alter table pgwake.queues
    add column key_rate double precision,
    add column key_burst int,
    add constraint queues_key_rate_is_up_to_1000000_a_second check (key_rate >= 0.00001 and key_rate <= 1000000),
    add constraint queues_key_burst_is_1_to_1000000 check (key_burst between 1 and 1000000);
  alter table pgwake.queues add column max_pending int
    constraint queues_max_pending_is_1_to_10000000 check (max_pending between 1 and 10000000),
    add constraint queues_webhooks_have_no_max_pending check (max_pending is null or name <> 'pgwake.webhooks');
  drop index pgwake.queues_insert_idx;
  create index queues_insert_idx on pgwake.queues (name)
    where priority is not null or wakeups <> 'asleep' or status_events <> 'watched' or max_pending is not null;
  alter table pgwake.concurrency_limits
    alter column max_running drop not null,
    add column rate_limit double precision,
    add constraint concurrency_limits_rate_limit_is_up_to_1000000_a_second
      check (rate_limit >= 0.00001 and rate_limit <= 1000000),
    add constraint concurrency_limits_has_a_limit check (num_nonnulls(max_running, rate_limit) > 0);
  create index concurrency_limits_rate_idx on pgwake.concurrency_limits (queue)
    where rate_limit is not null;
  alter table pgwake.kinds
    add column max_running int,
    add column rate_limit double precision,
    add column rate_burst int,
    add column expired_count bigint not null default 0,
    add column expired_at timestamptz,
    add constraint kinds_max_running_is_0_to_100000 check (max_running between 0 and 100000),
    add constraint kinds_rate_limit_is_up_to_1000000_a_second check (rate_limit >= 0.00001 and rate_limit <= 1000000),
    add constraint kinds_rate_burst_is_1_to_1000000 check (rate_burst between 1 and 1000000),
    add constraint kinds_rate_burst_needs_rate_limit check (rate_burst is null or rate_limit is not null);
  drop index pgwake.kinds_claim_idx;
  create index kinds_claim_idx on pgwake.kinds (name)
    where timeout is not null or lease is not null or declared_lease is not null or max_running is not null
      or rate_limit is not null;
  create index kinds_limits_idx on pgwake.kinds (name)
    where max_running is not null or rate_limit is not null;
  alter table pgwake.counts add column retried int;
  alter table pgwake.count_sums add column retried bigint not null default 0;
  create or replace view pgwake.count_rows as
  with fold as (
    select f.id,
      case when f.next_xid <= pg_snapshot_xmax(pg_current_snapshot()) then f.next_xid end as next_xid,
      f.open_xids
    from pgwake.count_folds as f
    order by f.id desc
    limit 1
  )
  select s.queue, s.at, s.enqueued, s.completed, s.failed, s.cancelled, s.queue_ms, s.execution_ms,
    s.live_rows, s.waiting_rows, s.running_rows, s.failed_rows, s.completed_rows, s.cancelled_rows,
    null::smallint as finished_slot, null::tid as counts_tid, s.retried
  from pgwake.count_sums as s
  where s.fold = (select fold.id from fold)
  union all
  select c.queue, c.at, c.enqueued, c.completed, c.failed, c.cancelled, c.queue_ms, c.execution_ms,
    c.live_rows, c.waiting_rows, c.running_rows, c.failed_rows, c.completed_rows, c.cancelled_rows,
    c.finished_slot, c.ctid, c.retried
  from pgwake.counts as c
  where c.xid >= coalesce((select fold.next_xid from fold), '0')
  union all
  select c.queue, c.at, c.enqueued, c.completed, c.failed, c.cancelled, c.queue_ms, c.execution_ms,
    c.live_rows, c.waiting_rows, c.running_rows, c.failed_rows, c.completed_rows, c.cancelled_rows,
    c.finished_slot, c.ctid, c.retried
  from pgwake.counts as c
  where c.xid = any ((select fold.open_xids from fold)::xid8[]) and c.xid < (select fold.next_xid from fold);
end
$migration$;

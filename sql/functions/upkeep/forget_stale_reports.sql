-- Removes what was last heard of long ago: workers after a day; kinds of which nothing is
-- known but that workers gave their jobs back, after a week; renewals that no longer hold;
-- buckets of concurrency keys that are full again; queues that waited for room of a kind,
-- after a minute. Returns how many. Skips rows that somebody has locked: they are being
-- reported, or used.
create or replace function pgwake.forget_stale_reports()
returns int
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  v_worker_count int;
  v_kind_count int;
  v_bucket_count int;
  v_renewal_count int;
  v_queue_count int;
begin
  delete from pgwake.missed_renewals as r
  where r.ctid = any (array(
    select s.ctid from pgwake.missed_renewals as s where s.expires_at < pgwake.now() for update skip locked));
  get diagnostics v_renewal_count = row_count;
  delete from pgwake.workers as w
  where w.ctid = any (array(
    select s.ctid from pgwake.workers as s
    where s.seen_at < pgwake.now() - interval '1 day'
    for update skip locked));
  get diagnostics v_worker_count = row_count;
  delete from pgwake.kinds as k
  where k.ctid = any (array(
    select s.ctid from pgwake.kinds as s
    where s.bounced_at < pgwake.now() - interval '7 days' and s.declared_at is null and not s.check_payload
      and num_nonnulls(s.max_attempts, s.backoff_base, s.backoff_cap, s.backoff_jitter, s.timeout, s.lease,
                       s.priority, s.max_running, s.rate_limit) = 0
    for update skip locked));
  get diagnostics v_kind_count = row_count;
  delete from pgwake.key_buckets as b
  where b.ctid = any (array(
    select s.ctid from pgwake.key_buckets as s where s.full_at <= pgwake.now() for update skip locked));
  get diagnostics v_bucket_count = row_count;
  delete from pgwake.kind_waiters as w
  where w.ctid = any (array(
    select s.ctid from pgwake.kind_waiters as s
    where s.at < clock_timestamp() - interval '1 minute'
    for update skip locked));
  get diagnostics v_queue_count = row_count;
  return v_worker_count + v_kind_count + v_bucket_count + v_renewal_count + v_queue_count;
end
$$;

comment on function pgwake.forget_stale_reports is
  'Internal: removes workers, bounced kinds, renewals and buckets that were last heard of long ago.';
revoke all on function pgwake.forget_stale_reports from public;

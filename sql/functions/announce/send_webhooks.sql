-- Enqueues a job of kind pgwake.webhook, in queue pgwake.webhooks, for each of these jobs
-- that have ended: to their own webhook, or their queue's. Internal, for who ends jobs, in
-- the same transaction.
--
-- Payload: url, id, queue, kind, status and finished_at of the job. What is long, such as
-- its result, the handler reads when it delivers. Webhooks have none themselves.
create or replace function pgwake.send_webhooks(job_ids bigint[])
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
begin
  insert into pgwake.jobs (kind, queue, payload)
  select 'pgwake.webhook', 'pgwake.webhooks', jsonb_build_object(
    'url', coalesce(e.webhook, q.webhook), 'id', e.id, 'queue', e.queue, 'kind', e.kind, 'status', e.status,
    'finished_at', e.finished_at)
  from (
    select j.id, j.queue, j.kind, j.status, j.finished_at, j.webhook
    from pgwake.jobs_failed as j where j.id = any (send_webhooks.job_ids)
    union all
    select j.id, j.queue, j.kind, j.status, j.finished_at, j.webhook
    from pgwake.jobs_finished as j
    where j.id = any (send_webhooks.job_ids) and j.finished_slot = pgwake.finished_slot(pgwake.now())
  ) as e
  left join pgwake.queues as q on q.name = e.queue
  where coalesce(e.webhook, q.webhook) is not null and e.kind <> 'pgwake.webhook';
end
$$;

comment on function pgwake.send_webhooks is
  'Internal: enqueues the webhooks of jobs that have ended.';
revoke all on function pgwake.send_webhooks from public;

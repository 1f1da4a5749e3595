-- Tells workers at commit, on channel pgwake_cancel, that the cancellation of running
-- jobs has been asked for. Internal: called by whoever has written cancel_requested_at.
-- Parallel arrays of ids and claimed_by.
--
-- The payload is {"worker": claimed_by, "jobs": [id, ...]}, at most 100 ids each. It says
-- no more than where to look: extend_leases answers cancel_requested, soon or at the next
-- renewal. With pgwake.notify = off nothing is sent.
create or replace function pgwake.notify_cancellations(job_ids bigint[], workers text[])
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  if current_setting('pgwake.notify', true) = 'off' then
    return;
  end if;
  perform pg_notify('pgwake_cancel', json_build_object('worker', b.worker, 'jobs', json_agg(b.id))::text)
  from (
    select u.worker, u.id, (row_number() over (partition by u.worker order by u.id) - 1) / 100 as batch
    from unnest(notify_cancellations.job_ids, notify_cancellations.workers) as u(id, worker)
  ) as b
  group by b.worker, b.batch;
end
$$;

comment on function pgwake.notify_cancellations is
  'Internal: tells workers to look at jobs whose cancellation has been asked for.';
revoke all on function pgwake.notify_cancellations from public;

-- report_worker_slots by a worker that does not say how many jobs it runs at once.
create or replace function pgwake.report_worker(
  worker text, host text, pid int, queues text[], kinds text[], version text default null
)
returns void
language plpgsql volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  perform pgwake.report_worker_slots(
    report_worker.worker, report_worker.host, report_worker.pid, report_worker.queues, report_worker.kinds,
    null, report_worker.version);
end
$$;

comment on function pgwake.report_worker is
  'report_worker_slots, of a worker that does not say its slots.';
revoke all on function pgwake.report_worker from public;

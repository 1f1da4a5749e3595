-- A worker says that it is there: what it is called (as in claimed_by), where it runs,
-- which queues and kinds it works on, and how many jobs it runs at once (slots; null:
-- not said). Workers call it each ten seconds; one that has been silent for 30 seconds
-- is taken for dead by list_workers, list_kinds and explain_job, and
-- maintain('retention') removes it after a day.
--
-- For people to look at: nothing rests on it, neither claims nor leases. A consumer in
-- another language may report itself too, or not.
--
-- Raises PW003. Locks the worker's own row. Rides workers_pkey.
create or replace function pgwake.report_worker_slots(
  worker text, host text, pid int, queues text[], kinds text[], slots int,
  version text default null
)
returns void
language plpgsql volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  if octet_length(report_worker_slots.worker) between 1 and 512 is not true then
    perform pgwake.raise_invalid(
      format('worker has %s bytes', coalesce(octet_length(report_worker_slots.worker)::text, 'no')),
      'Use the name that it claims with, 1 to 512 bytes.');
  end if;
  if report_worker_slots.queues is null or report_worker_slots.kinds is null
    or cardinality(report_worker_slots.queues) > 10000 or cardinality(report_worker_slots.kinds) > 10000
  then
    perform pgwake.raise_invalid(
      'queues or kinds is null or has more than 10000 names',
      'Pass arrays of up to 10000 names, empty ones for none.');
  end if;
  if report_worker_slots.slots < 0 then
    perform pgwake.raise_invalid(
      format('slots is %s', report_worker_slots.slots), 'Pass how many jobs it runs at once, or null.');
  end if;
  insert into pgwake.workers as w (name, host, pid, queues, kinds, version, started_at, seen_at, slots)
  values
    (report_worker_slots.worker, left(report_worker_slots.host, 255), report_worker_slots.pid,
     report_worker_slots.queues, report_worker_slots.kinds, left(report_worker_slots.version, 100),
     pgwake.now(), pgwake.now(), report_worker_slots.slots)
  on conflict (name) do update
  set host = excluded.host, pid = excluded.pid, queues = excluded.queues, kinds = excluded.kinds,
    version = excluded.version, seen_at = excluded.seen_at, slots = excluded.slots;
end
$$;

comment on function pgwake.report_worker_slots is
  'A worker says that it is there, for people to look at; nothing rests on it.';
revoke all on function pgwake.report_worker_slots from public;

-- Makes dead letters pending again, as retry_job does: those of a queue, a kind, a
-- fingerprint (see list_failed), or of all three; arguments left out (null) select all.
-- Those that failed first come first, at most max_jobs a call; repeat it for more.
--
-- rate spreads them over time: so many become due a second, from now on; null: all are
-- due now. patch is merged into each payload (see merge_patch). dry_run answers what
-- would be done and does nothing.
--
-- Returns a row a job, in that order: when it is due, its payload, and the outcome:
-- retried, would_retry (dry_run), or conflict: a live job has its unique key by now, or
-- an earlier one of the same call has it; such a job stays where it is. So does one that
-- somebody else has locked: it is in nobody's way, and not in the answer.
--
-- Raises PW003, with nothing changed: max_jobs not from 1 to 100,000, rate not from
-- 0.001 to 1,000,000, a patch that is no object or makes a payload too large. Takes the
-- dead letters' locks, skips locked ones. A unique key that another open transaction has
-- added is waited for. Rides jobs_failed_fingerprint_idx or jobs_failed_finished_at_idx.
create or replace function pgwake.retry_failed(
  queue text default null,
  kind text default null,
  fingerprint text default null,
  max_jobs int default 1000,
  rate double precision default null,  -- jobs a second
  patch jsonb default null,
  dry_run boolean default false
)
returns table (
  job_id bigint,
  queue text,
  kind text,
  run_at timestamptz,
  payload jsonb,
  outcome text
)
language sql volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
  select r.*
  from pgwake.redrive_failed(
    retry_failed.queue, retry_failed.kind, retry_failed.fingerprint, retry_failed.max_jobs, retry_failed.rate,
    retry_failed.patch, retry_failed.dry_run) as r
$$;

comment on function pgwake.retry_failed is
  'Makes dead letters pending again, spread over time and patched if wanted; a row a job.';
revoke all on function pgwake.retry_failed from public;

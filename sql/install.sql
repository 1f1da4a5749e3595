-- Installs pgwake, or brings it up to date. In one transaction; safe to run again,
-- while jobs run too.
--
--   psql -v ON_ERROR_STOP=1 -d mydatabase -f sql/install.sql
--
-- Needs a role that may create a schema in the database, or is a member of the one that
-- owns schema pgwake; no superuser, no extension. Grants nothing.
--
-- What is missing is made first, then the functions. What locks a table that is in use
-- comes last, so that the lock is held until the commit and no longer: see migrations/.
\set ON_ERROR_STOP on
begin isolation level read committed read write;

-- Not what a role or a database sets for others.
set local client_min_messages = warning;
set local search_path = pg_catalog, pg_temp;
set local standard_conforming_strings = on;
set local check_function_bodies = on;
set local statement_timeout = 0;
set local idle_in_transaction_session_timeout = 0;
do $timeout$
begin
  if current_setting('transaction_timeout', true) is not null then  -- from PostgreSQL 17 on
    set local transaction_timeout = 0;
  end if;
end
$timeout$;

-- "if not exists" is not safe against another installer at the same instant, so they
-- take turns. Each may wait for its tables as long as pgwake.lock_patience says.
do $lock$
declare
  v_patience interval := coalesce(nullif(current_setting('pgwake.lock_patience', true), ''), '1 minute');
begin
  perform set_config('lock_timeout', greatest(ceil(2000 * extract(epoch from v_patience)), 1) || 'ms', true);
  perform pg_advisory_xact_lock(1885828971, 0);
exception when lock_not_available then
  raise exception using
    errcode = 'lock_not_available',
    message = 'another installation of pgwake goes on in this database',
    hint = 'Run it again when that has ended: nothing has been changed.';
end
$lock$;
-- No table of the queue's users is waited for until the migrations: only vacuum and its like.
set local lock_timeout = '10s';

\ir schema.sql
\ir functions/raise_invalid.sql
\ir functions/lock_tables.sql
\ir functions/retry_delay.sql
\ir functions/finished_slot.sql
\ir functions/append_error.sql
\ir functions/status_event.sql
\ir functions/is_watched.sql
\ir functions/get_audience.sql
\ir functions/is_announced.sql
\ir functions/watch.sql
\ir functions/unwatch.sql
\ir functions/bell_key.sql
\ir functions/is_bell_held.sql
\ir functions/ring.sql
\ir functions/pass_baton.sql
\ir functions/unmute.sql
\ir functions/mute.sql
\ir functions/park.sql
\ir functions/unpark.sql
\ir functions/open_writers.sql
\ir functions/announce.sql
\ir functions/check_leases.sql
\ir functions/lease_outcome.sql
\ir functions/raise_outcome.sql
\ir functions/get_policy.sql
\ir functions/free_keys.sql
\ir functions/free_all_keys.sql
\ir functions/note_children.sql
\ir functions/free_children.sql
\ir functions/send_webhooks.sql
\ir functions/status_back.sql
\ir functions/error_fingerprint.sql
\ir functions/end_job.sql
\ir functions/type_problem.sql
\ir functions/payload_problem.sql
\ir functions/check_payload.sql
\ir functions/declare_kinds.sql
\ir functions/enqueue.sql
\ir functions/enqueue_many.sql
\ir functions/claim_cost.sql
\ir functions/dead_lanes.sql
\ir functions/check_cursor.sql
\ir functions/session_cursors.sql
\ir functions/refuse_claim.sql
\ir functions/get_adoption.sql
\ir functions/is_adopted.sql
\ir functions/check_adopted.sql
\ir functions/adopt.sql
\ir functions/next_place.sql
\ir functions/look_cost.sql
\ir functions/open_keys.sql
\ir functions/open_children.sql
\ir functions/admit_claim.sql
\ir functions/claim_batch.sql
\ir functions/claim_jobs.sql
\ir functions/claim_next_job.sql
\ir functions/complete_jobs.sql
\ir functions/complete_job.sql
\ir functions/fail_jobs.sql
\ir functions/fail_job.sql
\ir functions/force_end_job.sql
\ir functions/force_complete_job.sql
\ir functions/force_fail_job.sql
\ir functions/extend_leases.sql
\ir functions/set_progresses.sql
\ir functions/set_progress.sql
\ir functions/release_jobs.sql
\ir functions/snooze_job.sql
\ir functions/ask_workers.sql
\ir functions/cancel_job.sql
\ir functions/cancel_jobs.sql
\ir functions/retry_job.sql
\ir functions/merge_patch.sql
\ir functions/list_failed.sql
\ir functions/redrive_failed.sql
\ir functions/retry_failed.sql
\ir functions/purge.sql
\ir functions/crash_jobs.sql
\ir functions/try_crash_jobs.sql
\ir functions/count_crashed.sql
\ir functions/sweep_expired_leases.sql
\ir functions/release_worker_jobs.sql
\ir functions/fold_tallies.sql
\ir functions/apply_retention.sql
\ir functions/analyze_jobs.sql
\ir functions/recount_jobs.sql
\ir functions/look_at_keys.sql
\ir functions/look_at_children.sql
\ir functions/maintain.sql
\ir functions/look_at_pending.sql
\ir functions/sum_tallies.sql
\ir functions/get_queue_stats.sql
\ir functions/get_job.sql
\ir functions/get_parent_results.sql
\ir functions/next_run_at.sql
\ir functions/claim_or_park.sql
\ir functions/next_suspect_at.sql
\ir functions/is_live.sql
\ir functions/report_worker.sql
\ir functions/forget_worker.sql
\ir functions/forget_stale_reports.sql
\ir functions/note_bounces.sql
\ir functions/list_workers.sql
\ir functions/oldest_snapshot_at.sql
\ir functions/get_metrics.sql
\ir functions/list_kinds.sql
\ir functions/pause_queue.sql
\ir functions/resume_queue.sql
\ir functions/peek_jobs.sql
\ir functions/cron_problem.sql
\ir functions/schedule.sql
\ir functions/unschedule.sql
\ir functions/pause_schedule.sql
\ir functions/resume_schedule.sql
\ir functions/list_schedules.sql
\ir functions/due_schedules.sql
\ir functions/fire_schedule.sql
\ir functions/note_schedule_problem.sql
\ir functions/say_time.sql
\ir functions/say_name.sql
\ir functions/say_holders.sql
\ir functions/say_jobs.sql
\ir functions/explain_key.sql
\ir functions/explain_parents.sql
\ir functions/explain_limits.sql
\ir functions/explain_workers.sql
\ir functions/explain_place.sql
\ir functions/explain_wait.sql
\ir functions/explain_run.sql
\ir functions/explain_end.sql
\ir functions/explain_policy.sql
\ir functions/explain_attempts.sql
\ir functions/explain_job.sql
\ir functions/diagnose_schema.sql
\ir functions/diagnose_pins.sql
\ir functions/diagnose_server.sql
\ir functions/diagnose_bells.sql
\ir functions/diagnose_leases.sql
\ir functions/diagnose_leaves.sql
\ir functions/diagnose_queues.sql
\ir functions/diagnose.sql
\ir triggers.sql

-- Whatever else they wait for keeps the queue's users waiting: rather fail.
set local lock_timeout = '200ms';
\ir migrations/2.sql
\ir version_row.sql

commit;

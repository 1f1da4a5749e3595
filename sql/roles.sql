-- The three roles and what they may do; safe to run again, by several at once too.
--
--   psql -v ON_ERROR_STOP=1 -d mydatabase -f sql/roles.sql      or: pgwake init --roles
--
--   pgwake_producer  enqueues jobs, and reads them
--   pgwake_worker    and claims, runs and ends them, does the upkeep, and reads policy
--   pgwake_admin     and decides: cancels, retries, purges, pauses, sets policy
--
-- Each is a member of the one before. They can't log in: grant one of them to the role
-- of an application. They belong to the server, so they are the same in all its
-- databases; what they may do is granted in each where this is run.
--
-- Run it after install.sql of the same version, as the owner of the schema. Who has
-- CREATEROLE gets the roles made; otherwise a superuser has to have made them, and this
-- says how. What they have in the schema is afterwards what is listed here, no more.
\set ON_ERROR_STOP on
begin;

set local client_min_messages = warning;
set local search_path = pg_catalog, pg_temp;
set local lock_timeout = '2min';
do $lock$ begin perform pg_advisory_xact_lock(1885828971, 0); end $lock$;  -- as install.sql
set local lock_timeout = '10s';

do $roles$
declare
  v_owner text;
  v_statement text;
  v_left text := '';
begin
  select r.rolname into v_owner
  from pg_namespace as n
  join pg_roles as r on r.oid = n.nspowner
  where n.nspname = 'pgwake';
  if v_owner is null then
    raise exception using
      errcode = '3F000',
      message = 'there is no schema pgwake in this database',
      hint = 'Run install.sql first, or pgwake init.';
  elsif not pg_has_role(v_owner, 'usage') then
    raise exception using
      errcode = '42501',
      message = format('only the owner of the schema pgwake may grant rights in it, and %s is not', current_user),
      hint = format('Run it as %s.', v_owner);
  end if;

  for v_statement in
    select s.statement
    from (
      values
        ('create role pgwake_producer nologin', 'pgwake_producer', null),
        ('create role pgwake_worker nologin', 'pgwake_worker', null),
        ('create role pgwake_admin nologin', 'pgwake_admin', null),
        ('grant pgwake_producer to pgwake_worker', 'pgwake_producer', 'pgwake_worker'),
        ('grant pgwake_worker to pgwake_admin', 'pgwake_worker', 'pgwake_admin')
    ) as s(statement, name, member)
    where case
      when s.member is null then to_regrole(s.name) is null
      else not exists (
        select from pg_auth_members as m where m.roleid = to_regrole(s.name) and m.member = to_regrole(s.member))
    end
  loop
    begin
      execute v_statement;
    exception
      when duplicate_object or unique_violation then
        null;  -- somebody else has, in another database
      when insufficient_privilege or undefined_object then
        v_left := v_left || v_statement || '; ';
    end;
  end loop;
  if v_left <> '' then
    raise exception using
      errcode = '42501',
      message = format('roles of pgwake are missing, and %s may not make them', current_user),
      hint = format('Have a superuser run, once for the whole server: %sThen run this again.', v_left);
  end if;
end
$roles$;

revoke all on schema pgwake from pgwake_producer, pgwake_worker, pgwake_admin;
revoke all on all tables in schema pgwake from pgwake_producer, pgwake_worker, pgwake_admin;
revoke all on all sequences in schema pgwake from pgwake_producer, pgwake_worker, pgwake_admin;
revoke all on all routines in schema pgwake from pgwake_producer, pgwake_worker, pgwake_admin;

grant usage on schema pgwake to pgwake_producer, pgwake_worker, pgwake_admin;

-- Enqueue, and see what becomes of it.
grant usage on sequence pgwake.jobs_id_seq to pgwake_producer;
grant insert
  (queue, kind, payload, metadata, priority, run_at, max_attempts, unique_key, concurrency_key, depends_on,
   on_parent_failure, webhook, expires_at, unique_until)
  on pgwake.jobs to pgwake_producer;
grant select on pgwake.jobs, pgwake.jobs_live, pgwake.jobs_failed, pgwake.jobs_finished, pgwake.events to pgwake_producer;
grant insert (name, payload, expires_at) on pgwake.events to pgwake_producer;
grant execute on function
  pgwake.check_payload,
  pgwake.clock_offset,
  pgwake.emit_event,
  pgwake.enqueue,
  pgwake.enqueue_many,
  pgwake.get_job,
  pgwake.get_queue_stats,
  pgwake.get_steps,
  pgwake.now,
  pgwake.unwatch,
  pgwake.watch
  to pgwake_producer;

-- Run jobs, fire schedules, keep the tables in order, and show what goes on.
grant select on
  pgwake.concurrency_limits,
  pgwake.installation,
  pgwake.kinds,
  pgwake.queues,
  pgwake.schedules,
  pgwake.schema_version,
  pgwake.count_rows,
  pgwake.workers
  to pgwake_worker;
grant execute on function
  pgwake.allow_replace,
  pgwake.await_event,
  pgwake.await_job,
  pgwake.claim_batch,
  pgwake.claim_jobs,
  pgwake.claim_next_job,
  pgwake.claim_or_wait,
  pgwake.claim_rows,
  pgwake.complete_job,
  pgwake.complete_jobs,
  pgwake.count_retries,
  pgwake.declare_kinds,
  pgwake.diagnose,
  pgwake.diagnose_worker,
  pgwake.due_schedules,
  pgwake.explain_job,
  pgwake.extend_leases,
  pgwake.fail_job,
  pgwake.fail_jobs,
  pgwake.fire_schedule,
  pgwake.fire_schedules,
  pgwake.forget_worker,
  pgwake.get_adoption,
  pgwake.get_metrics,
  pgwake.get_parent_results,
  pgwake.is_live,
  pgwake.lease_outcome,
  pgwake.list_failed,
  pgwake.list_kinds,
  pgwake.list_schedules,
  pgwake.list_workers,
  pgwake.maintain,
  pgwake.mute,
  pgwake.next_run_at,
  pgwake.next_run_ats,
  pgwake.next_suspect_run_at,
  pgwake.note_schedule_problem,
  pgwake.notify_lock_key,
  pgwake.open_writers,
  pgwake.park,
  pgwake.pass_duty,
  pgwake.peek_jobs,
  pgwake.raise_invalid,
  pgwake.record_step,
  pgwake.record_steps,
  pgwake.release_jobs,
  pgwake.release_worker_jobs,
  pgwake.report_worker,
  pgwake.report_worker_slots,
  pgwake.retry_delay,
  pgwake.set_progress,
  pgwake.set_progresses,
  pgwake.sleep_job,
  pgwake.snooze_job,
  pgwake.sweep_expired_leases,
  pgwake.take_upkeep,
  pgwake.unmute,
  pgwake.unpark
  to pgwake_worker;

-- Decide.
grant select on all tables in schema pgwake to pgwake_admin;
grant insert, update, delete on pgwake.queues, pgwake.concurrency_limits to pgwake_admin;
grant delete on pgwake.unique_periods to pgwake_admin;
grant delete,
  insert (name, max_attempts, backoff_base, backoff_cap, backoff_jitter, timeout, lease, priority, check_payload,
    max_running, rate_limit, rate_burst),
  update (name, max_attempts, backoff_base, backoff_cap, backoff_jitter, timeout, lease, priority, check_payload,
    max_running, rate_limit, rate_burst)
  on pgwake.kinds to pgwake_admin;
grant execute on function
  pgwake.adopt,
  pgwake.apply_retention,
  pgwake.cancel_job,
  pgwake.cancel_jobs,
  pgwake.force_complete_job,
  pgwake.force_fail_job,
  pgwake.merge_patch,
  pgwake.pause_queue,
  pgwake.pause_schedule,
  pgwake.purge,
  pgwake.recount_jobs,
  pgwake.resume_queue,
  pgwake.resume_schedule,
  pgwake.retry_failed,
  pgwake.retry_from_step,
  pgwake.retry_job,
  pgwake.run_now,
  pgwake.run_schedule,
  pgwake.schedule,
  pgwake.unschedule,
  pgwake.update_jobs
  to pgwake_admin;

commit;

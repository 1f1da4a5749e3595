-- What is wrong with this installation, and what to type against it: one row a finding,
-- none where all is well, the worst first. severity is error (jobs don't run, or won't
-- soon), warning (it will get worse) or notice (somebody may have meant it). subject is
-- what it is about; fix is a statement for psql, or a command, with its reason behind
-- it as a comment; value is what was measured, in seconds where that is a time.
--
-- Looks at what it is made of (diagnose_installation), at who pins dead rows
-- (diagnose_pins), at the server (diagnose_server), at notify and duty locks
-- (diagnose_wake_locks) and the others (diagnose_limit_locks), at running jobs
-- (diagnose_leases), at children (diagnose_children), at the ring (diagnose_retention),
-- and at queues and kinds (diagnose_queues), schedules and policy: each says its
-- thresholds. At most ten rows a check, the worst.
--
-- Reads only, so it answers on a standby too, and never scans jobs: tests/EVIDENCE.md says
-- what it costs. What the owner of pgwake may not see of other roles' sessions is a
-- finding of its own. Rides jobs_claim_idx, rechecks_due_idx and jobs_lease_idx.
create or replace function pgwake.diagnose()
returns table (
  check_name text, severity text, subject text, problem text, fix text, value double precision
)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
begin
  return query
  select f.check_name, f.severity, f.subject, f.problem, f.fix, f.value
  from (
    select * from pgwake.diagnose_installation()
    union all select * from pgwake.diagnose_pins()
    union all select * from pgwake.diagnose_server()
    union all select * from pgwake.diagnose_wake_locks()
    union all select * from pgwake.diagnose_limit_locks()
    union all select * from pgwake.diagnose_leases()
    union all select * from pgwake.diagnose_children()
    union all select * from pgwake.diagnose_retention()
    union all select * from pgwake.diagnose_queues()
    union all select * from pgwake.diagnose_schedules()
    union all select * from pgwake.diagnose_policy()
  ) as f
  order by array_position(array['error', 'warning', 'notice'], f.severity), f.check_name, f.subject;
end
$$;

comment on function pgwake.diagnose is
  'What is wrong with this installation, and what to type against it; no rows: nothing.';
revoke all on function pgwake.diagnose from public;

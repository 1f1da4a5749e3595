-- What fail_jobs answers for a job that is not held under a lease: what it answered the
-- first time, if the call is a repetition.
--
-- Returns failed, cancelled or no_such_job as lease_outcome does; retry if the last entry
-- of the job's errors is just this one (a retry keeps no lease, and an entry follows each
-- lease that is lost); else lease_lost. Rides the primary keys of the leaves.
create or replace function pgwake.repeated_outcome(
  job_id bigint, lease_id uuid, reason text, message text, traceback text
)
returns text
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  v_outcome constant text := pgwake.lease_outcome(repeated_outcome.job_id, repeated_outcome.lease_id);
begin
  if v_outcome in ('failed', 'cancelled', 'no_such_job') then
    return v_outcome;
  end if;
  return case
    when v_outcome = 'lease_lost' and repeated_outcome.message is not null
      and (pgwake.get_job(repeated_outcome.job_id) -> 'errors' -> -1) @> ((pgwake.append_error(
        null, null, null, repeated_outcome.reason, repeated_outcome.message, repeated_outcome.traceback) -> 0)
        - '{attempt,at,worker}'::text[])
      then 'retry'
    else 'lease_lost'
  end;
end
$$;

comment on function pgwake.repeated_outcome is
  'Internal: what fail_jobs answers for a job that is not held.';
revoke all on function pgwake.repeated_outcome from public;

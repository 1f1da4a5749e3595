-- Admits what waits in a queue and is due by now: children of parents that have ended,
-- then jobs whose concurrency key has room. Internal, for claim_rows, where a recheck is
-- due: see admit_children and admit_keys.
--
-- at: comes back as the time after that. recheck_at: when to look again. resume_points:
-- the claim's, behind which it looks.
create or replace function pgwake.admit_due_jobs(
  queue text, count int, key_limit int, key_rate double precision, key_burst int, inout at timestamptz, from_at timestamptz, resume_points jsonb,
  out recheck_at timestamptz
)
returns record
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  v_audience constant pgwake.audience := pgwake.get_audience();
begin
  select c.recheck_at into admit_due_jobs.recheck_at
  from pgwake.admit_children(
    admit_due_jobs.queue, admit_due_jobs.at, admit_due_jobs.from_at,
    least(greatest(100, 10 * admit_due_jobs.count), 1000), v_audience) as c;
  recheck_at := least(recheck_at, pgwake.admit_keys(
    admit_due_jobs.queue, admit_due_jobs.count, admit_due_jobs.key_limit, admit_due_jobs.key_rate,
    admit_due_jobs.key_burst, admit_due_jobs.at, admit_due_jobs.from_at,
    (select max((p.value ->> 0)::timestamptz) from jsonb_each(admit_due_jobs.resume_points) as p), v_audience));
  admit_due_jobs.at := greatest(admit_due_jobs.at, clock_timestamp() + (pgwake.now() - now()));
end
$$;

comment on function pgwake.admit_due_jobs is
  'Internal: admits what waits in a queue and is due.';
revoke all on function pgwake.admit_due_jobs from public;

-- Raises PW005: a job, ended or not, has a unique key until a time. Internal. refused_by:
-- the constraint, where it is the table that says so.
create or replace function pgwake.raise_unique_period(
  kind text, unique_key text, until timestamptz, job_id bigint, refused_by text default ''
)
returns void
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
begin
  raise exception using
    errcode = 'PW005',
    message = format('a job of kind %s has the unique key %L until %s', raise_unique_period.kind,
      raise_unique_period.unique_key, raise_unique_period.until),
    detail = format('job %s', raise_unique_period.job_id),
    constraint = raise_unique_period.refused_by,
    hint = 'Let it be, or wait until then. To free the key, an admin deletes its row of pgwake.unique_periods.';
end
$$;

comment on function pgwake.raise_unique_period is
  'Internal: raises PW005, a unique key is taken until a time.';
revoke all on function pgwake.raise_unique_period from public;

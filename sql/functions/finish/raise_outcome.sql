-- For the one-job functions: raises PW001 or PW002 where a batch function answers
-- no_such_job or lease_lost.
create or replace function pgwake.raise_outcome(job_id bigint, outcome text)
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  if raise_outcome.outcome = 'no_such_job' then
    raise exception using
      errcode = 'PW001',
      message = format('there is no job %s', coalesce(raise_outcome.job_id::text, 'null')),
      hint = 'It was never committed, or it ended and its retention has passed.';
  elsif raise_outcome.outcome = 'lease_lost' then
    raise exception using
      errcode = 'PW002',
      message = format('the lease of job %s is lost', raise_outcome.job_id),
      hint = 'The lease ran out or the job ended: somebody else decides about it now. Drop what you have of it.';
  end if;
end
$$;

comment on function pgwake.raise_outcome is
  'Internal: raises PW001 or PW002 for no_such_job or lease_lost.';
revoke all on function pgwake.raise_outcome from public;

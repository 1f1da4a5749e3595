-- The changes that update_jobs is given, a column each; null where one is left out, or is
-- null itself, and for run_at where that is now. Internal. Raises PW003 for what is not
-- an object of known fields, class 22 and the named checks (23514) for their values.
create or replace function pgwake.given_changes(
  changes jsonb,
  out priority pgwake.job_priority,
  out run_at pgwake.job_run_at,
  out queue text,
  out max_attempts pgwake.job_max_attempts,
  out expires_at timestamptz,
  out payload jsonb,
  out metadata jsonb
)
returns record
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  v_problem text;
begin
  if jsonb_typeof(given_changes.changes) is distinct from 'object' or given_changes.changes = '{}' then
    perform pgwake.raise_invalid(
      'changes is not an object with a field', 'Use an object of what is to be different, such as {"priority": 10}.');
  end if;
  select format('field %L of changes %s', c.name, c.problem) into v_problem
  from (
    select f.name, case
        when f.name not in ('priority', 'run_at', 'queue', 'max_attempts', 'expires_at', 'payload', 'metadata') then 'is not known'
        when f.name not in ('max_attempts', 'expires_at', 'metadata') and f.value = 'null' then 'is null'
        when f.name in ('payload', 'metadata') and jsonb_typeof(f.value) not in ('object', 'null') then 'is not an object'
      end as problem
    from jsonb_each(given_changes.changes) as f(name, value)
  ) as c
  where c.problem is not null
  limit 1;
  if found then
    perform pgwake.raise_invalid(
      v_problem,
      'Use priority, run_at, queue, max_attempts, expires_at, payload and metadata (objects to be merged); '
        'leave out what stays.');
  end if;

  select c.* into given_changes.priority, given_changes.run_at, given_changes.queue, given_changes.max_attempts,
    given_changes.expires_at, given_changes.payload, given_changes.metadata
  from jsonb_to_record(
    case when given_changes.changes ->> 'run_at' = 'now' then given_changes.changes - 'run_at'
      else given_changes.changes end
  ) as c(
    priority pgwake.job_priority, run_at pgwake.job_run_at, queue text, max_attempts pgwake.job_max_attempts,
    expires_at timestamptz, payload jsonb, metadata jsonb);
  if given_changes.expires_at not between '0001-01-02 00:00+00' and '9999-12-30 00:00+00' then
    perform pgwake.raise_invalid(
      format('expires_at is %s', given_changes.expires_at), 'Use a time in the years 1 to 9999, or null for never.');
  end if;
  if octet_length(given_changes.queue) not between 1 and 128 then
    perform pgwake.raise_invalid(
      format('the queue to move to has %s bytes', octet_length(given_changes.queue)), 'Use a name of 1 to 128 bytes.');
  end if;
end
$$;

comment on function pgwake.given_changes is
  'Internal: the changes that update_jobs is given.';
revoke all on function pgwake.given_changes from public;

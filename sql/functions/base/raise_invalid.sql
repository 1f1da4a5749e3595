-- Raises PW003 with a hint that says what to do.
create or replace function pgwake.raise_invalid(problem text, advice text)
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  raise exception using errcode = 'PW003', message = problem, hint = advice;
end
$$;

comment on function pgwake.raise_invalid is 'Internal: raises PW003, invalid argument.';
revoke all on function pgwake.raise_invalid from public;

-- Refuses (PW003) what can't be the name of a step or an event.
create or replace function pgwake.check_step_name(name text)
returns void
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
begin
  if (octet_length(check_step_name.name) between 1 and 512) is not true then
    perform pgwake.raise_invalid(
      format('the name of a step or event %s', coalesce('has ' || octet_length(check_step_name.name) || ' bytes', 'is null')),
      'Use text of 1 to 512 bytes.');
  end if;
end
$$;

comment on function pgwake.check_step_name is
  'Internal: refuses what can''t be the name of a step or an event.';
revoke all on function pgwake.check_step_name from public;

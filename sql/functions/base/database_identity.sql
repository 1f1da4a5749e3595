-- Which database this is: its server's system identifier and its own oid. A restored
-- dump, a clone and a database after pg_upgrade have another one; a standby that was
-- promoted has the same, and so has a copy of the whole server's files.
create or replace function pgwake.database_identity()
returns text
language plpgsql
stable
set search_path = pg_catalog, pg_temp
as $$
declare
  v_server text := '-';
begin
  if has_function_privilege('pg_control_system()', 'execute') then
    v_server := (pg_control_system()).system_identifier;
  end if;
  return v_server || ':' || (select d.oid from pg_database as d where d.datname = current_database());
end
$$;

comment on function pgwake.database_identity is
  'Internal: which database this is; a copy is another one.';
revoke all on function pgwake.database_identity from public;

-- Whether jobs may run here: false in a copy that nobody has adopted. Internal.
--
-- Which database it is takes a look at the server's control file. A session that has
-- looked remembers it in the setting pgwake.adopted, as its own process id: a setting of
-- a role or a database, which a dump may carry to another server, never is that of a
-- session to come.
create or replace function pgwake.is_adopted()
returns boolean
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  if current_setting('pgwake.adopted', true) = pg_backend_pid()::text then
    return true;
  end if;
  if (select i.identity <> pgwake.database_identity() from pgwake.installation as i) then  -- as get_adoption()
    return false;
  end if;
  perform set_config('pgwake.adopted', pg_backend_pid()::text, false);
  return true;
end
$$;

comment on function pgwake.is_adopted is
  'Internal: whether jobs may run here.';
revoke all on function pgwake.is_adopted from public;

-- Raises PW006 in a copy that nobody has adopted. Internal, for claims.
create or replace function pgwake.check_adopted()
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  v_adoption record;
begin
  if pgwake.is_adopted() then
    return;
  end if;
  select a.* into v_adoption from pgwake.get_adoption() as a;
  raise exception using
    errcode = 'PW006',
    message = format(
      'this database, %s (%s), is a copy: pgwake is noted for %s%s', v_adoption.present_identity, current_database(),
      v_adoption.identity, ', ' || v_adoption.environment),
    hint = 'If its jobs are to run here too: select pgwake.adopt(), or the command pgwake adopt, which shows them first.';
end
$$;

comment on function pgwake.check_adopted is
  'Internal: raises PW006 in a copy that nobody has adopted.';
revoke all on function pgwake.check_adopted from public;

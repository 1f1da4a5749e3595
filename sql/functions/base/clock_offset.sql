-- How far this session's clock is set off, for now(): the setting pgwake.clock_offset,
-- where whoever logged in is a member of the role that owns the schema. Anybody may
-- write the setting, and who could move the clock of functions that run as the owner
-- would let leases run out and have history past its retention deleted.
--
-- Not current_user, which is the owner inside of those.
create or replace function pgwake.clock_offset()
returns interval
language plpgsql stable parallel safe
cost 1  -- nearly never called; at the default of 100 a look at a few jobs would start parallel workers
set search_path = pg_catalog, pg_temp
as $$
begin
  if pg_has_role(session_user, (select n.nspowner from pg_namespace as n where n.nspname = 'pgwake'), 'member') then
    return coalesce(nullif(current_setting('pgwake.clock_offset', true), ''), '0');
  end if;
  return '0';
end
$$;

comment on function pgwake.clock_offset is
  'Internal: the setting pgwake.clock_offset, where this session may set the clock.';
revoke all on function pgwake.clock_offset from public;

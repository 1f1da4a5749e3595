-- Ends a schedule for good. Jobs that are there stay; the ticks of the next two seconds
-- may be among them.
--
-- Returns whether there was such a schedule. Rides schedules_pkey.
create or replace function pgwake.unschedule(name text)
returns boolean
language plpgsql volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  delete from pgwake.schedules as s where s.name = unschedule.name;
  return found;
end
$$;

comment on function pgwake.unschedule is
  'Ends a schedule for good; returns whether there was one of that name.';
revoke all on function pgwake.unschedule from public;

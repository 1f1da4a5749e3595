-- Gives up what watch() asked for; without it, does nothing.
create or replace function pgwake.unwatch()
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  perform set_config('pgwake.is_watching', 'off', false);
  -- Looked up, since giving back what one does not hold is a warning.
  perform pg_advisory_unlock_shared(1885828973, 0)
  from pg_locks as l
  where l.locktype = 'advisory' and l.pid = pg_backend_pid()
    and l.classid = 1885828973 and l.objid = 0 and l.objsubid = 2
    and l.mode = 'ShareLock';
end
$$;

comment on function pgwake.unwatch is 'Gives up what watch asked for.';
revoke all on function pgwake.unwatch from public;

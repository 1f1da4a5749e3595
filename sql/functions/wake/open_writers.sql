-- The transactions that may be about to commit jobs: those that have a lock on
-- pgwake.jobs or jobs_live in row exclusive mode, prepared ones too.
--
-- Returns their virtual transaction ids, which is how one knows them again: a process
-- id is missing from prepared ones, and xact_start is hidden from ordinary roles. Who
-- has taken a notify lock asks once, looks at the queue, and looks again when one of
-- these has gone: it may have probed just before the notify lock was taken.
create or replace function pgwake.open_writers()
returns text[]
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  return array(
    select distinct l.virtualtransaction
    from pg_locks as l
    where l.locktype = 'relation' and l.mode = 'RowExclusiveLock' and l.granted
      and l.relation in ('pgwake.jobs'::regclass, 'pgwake.jobs_live'::regclass)
      and l.database = (select d.oid from pg_database as d where d.datname = current_database())
      and l.pid is distinct from pg_backend_pid()
  );
end
$$;

comment on function pgwake.open_writers is
  'Virtual ids of the transactions that write to pgwake.jobs.';
revoke all on function pgwake.open_writers from public;

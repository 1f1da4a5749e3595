-- Since when, by the server's own clock, somebody has pinned the dead rows of this
-- database; null: nobody. Internal, for get_metrics.
--
-- Looks at the transactions and snapshots of this database's sessions, at prepared
-- transactions, and at replication slots where a time can be known: since when a slot
-- has been inactive (PostgreSQL 17), or when the transaction was committed that it keeps
-- (track_commit_timestamp). VACUUM pins nothing. When a session of another role began
-- its transaction is told to members of pg_read_all_stats; others see their own.
--
-- Reads only, and no table.
create or replace function pgwake.oldest_snapshot_at()
returns timestamptz
language plpgsql stable
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
as $$
declare
  v_has_commit_times constant boolean := current_setting('track_commit_timestamp')::boolean and not pg_is_in_recovery();
begin
  return least(
    (
      select min(a.xact_start)
      from pg_stat_get_activity(null) as a
      where a.datid = (select d.oid from pg_catalog.pg_database as d where d.datname = current_database())
        and num_nonnulls(a.backend_xid, a.backend_xmin) > 0
        and a.pid <> pg_backend_pid()
        and a.pid not in (select p.pid from pg_catalog.pg_stat_progress_vacuum as p)
    ),
    (select min(p.prepared) from pg_catalog.pg_prepared_xacts as p where p.database = current_database()),
    (
      -- By name, since not every version has the column.
      select min(least(
        (to_jsonb(s) ->> 'inactive_since')::timestamptz,
        case when v_has_commit_times then pg_xact_commit_timestamp(s.xmin) end))
      from pg_catalog.pg_replication_slots as s
      where s.xmin is not null
    ));
end
$$;

comment on function pgwake.oldest_snapshot_at is
  'Internal: since when somebody has pinned the dead rows of this database.';
revoke all on function pgwake.oldest_snapshot_at from public;

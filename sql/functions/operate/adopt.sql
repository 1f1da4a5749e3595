-- Has jobs run in this database, which may be a copy: notes that the installation is
-- for it. Returns what is noted.
--
--   environment  such as production or staging, 1 to 128 bytes, that workers may insist
--                on (PGWAKE_ENVIRONMENT); null: as it is noted
--   guard        false: notes no identity, so that the copies of this database run jobs
--                too: for one that others are cloned from, such as the template of tests
--
-- A copy is a restored dump, a clone, a database after pg_upgrade or in a new server by
-- logical replication: see database_identity(). Until it is adopted its claims raise
-- PW006, its schedules fire nothing and maintain() does nothing; adding jobs, looking,
-- cancelling and pausing work. Jobs that were running when it was made crash there when
-- their leases run out: nobody renews these.
--
-- Lifts the sequence of ids if it lags behind the rows that came: see lift_ids.
-- Raises PW003 for an environment that can't be. Locks installation's row.
create or replace function pgwake.adopt(
  inout environment text default null,
  guard boolean default true,
  out identity text
)
returns record
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  if octet_length(adopt.environment) not between 1 and 128 then
    perform pgwake.raise_invalid(
      format('environment has %s bytes', octet_length(adopt.environment)), 'Use 1 to 128 bytes, such as production.');
  end if;
  if adopt.guard is null then
    perform pgwake.raise_invalid('guard is null', 'Use true, or false for a database that others are cloned from.');
  end if;
  update pgwake.installation as i
  set identity = case when adopt.guard then pgwake.database_identity() end,
    environment = coalesce(adopt.environment, i.environment)
  returning i.identity, i.environment into adopt.identity, adopt.environment;
  perform pgwake.lift_ids();
end
$$;

comment on function pgwake.adopt is
  'Has jobs run in this database, which may be a copy; returns what is noted of it.';
revoke all on function pgwake.adopt from public;

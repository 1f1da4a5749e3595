-- Which database the installation is noted for, and which this is: one row.
--
-- identity: as database_identity() was when it was installed or adopted; null: not
-- guarded, any may be a copy of it. present_identity: as it is now. is_copy: they
-- differ, so nothing runs here before adopt(). environment: what workers may insist on.
-- Reads only, so it answers on a standby too. A later version keeps this answer: workers
-- of older ones ask for it.
create or replace function pgwake.get_adoption(
  out identity text,
  out present_identity text,
  out is_copy boolean,
  out environment text
)
returns record
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  present_identity := pgwake.database_identity();
  select i.identity, i.environment into get_adoption.identity, get_adoption.environment
  from pgwake.installation as i;
  is_copy := coalesce(identity <> present_identity, false);
end
$$;

comment on function pgwake.get_adoption is
  'Which database the installation is noted for, which this is, and its environment.';
revoke all on function pgwake.get_adoption from public;

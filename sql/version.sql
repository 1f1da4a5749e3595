-- Comes before anything that a newer schema may have changed.
--
-- Leaves what was installed (0: nothing) and what will be in settings of the transaction,
-- for the migrations and for version_row.sql.
do $version$
declare
  this_version constant int := 2;
  serves_from constant int := 1;  -- the oldest version whose workers can use this one
  installed_version int;
begin
  select v.version into installed_version from pgwake.schema_version as v;
  if installed_version > this_version then
    raise exception using
      errcode = 'PW004',
      message = format('the database has pgwake schema %s, these files are schema %s',
                       installed_version, this_version),
      hint = 'Install with the newer pgwake; going back is not supported.';
  end if;
  perform set_config('pgwake.installed_version', coalesce(installed_version, 0)::text, true),
    set_config('pgwake.this_version', this_version::text, true),
    set_config('pgwake.serves_from', serves_from::text, true);
end
$version$;

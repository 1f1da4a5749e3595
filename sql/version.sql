-- Comes before anything that a newer schema may have changed. Nobody sees the row
-- before the rest is there too: it is all one transaction.
do $version$
declare
  this_version constant int := 1;
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
  insert into pgwake.schema_version as v (version) values (this_version)
  on conflict (singleton) do update set version = excluded.version, updated_at = now()
    where v.version <> excluded.version;
end
$version$;

-- Comes before anything that a newer schema may have changed. Nobody sees the row
-- before the rest is there too: it is all one transaction.
--
-- Leaves what was installed, 0 for nothing, in the setting pgwake.installed_version, for
-- the migrations.
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
  perform set_config('pgwake.installed_version', coalesce(installed_version, 0)::text, true);
  if installed_version = 1 then
    -- Here and not in a migration: the statement below writes it.
    alter table pgwake.schema_version add column serves_from int not null default 1;
    alter table pgwake.schema_version alter column serves_from drop default;
  end if;
  insert into pgwake.schema_version as v (version, serves_from) values (this_version, serves_from)
  on conflict (singleton) do update
    set version = excluded.version, serves_from = excluded.serves_from, updated_at = now()
    where v.version <> excluded.version or v.serves_from <> excluded.serves_from;
end
$version$;

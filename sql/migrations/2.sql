-- Which database it is, so that a copy of it is told from it.
do $migration$
begin
  if current_setting('pgwake.installed_version')::int not between 1 and 1 then
    return;
  end if;

  alter table pgwake.installation
    add column identity text collate "C",
    add column environment text collate "C",
    add constraint installation_environment_is_1_to_128_bytes
      check (octet_length(environment) between 1 and 128);
  update pgwake.installation set identity = pgwake.database_identity();
end
$migration$;

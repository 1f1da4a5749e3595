-- Which database it is, so that a copy of it is told from it; which workers a schema
-- serves; and in one index all that inserts have to know of queues.
do $migration$
begin
  if current_setting('pgwake.installed_version')::int not between 1 and 1 then
    return;
  end if;
  perform pgwake.lock_tables('pgwake.installation', 'pgwake.schema_version', 'pgwake.queues');

  alter table pgwake.installation
    add column identity text collate "C",
    add column environment text collate "C",
    add constraint installation_environment_is_1_to_128_bytes
      check (octet_length(environment) between 1 and 128);
  update pgwake.installation set identity = pgwake.database_identity();

  alter table pgwake.schema_version add column serves_from int not null default 1;
  alter table pgwake.schema_version alter column serves_from drop default;

  drop index pgwake.queues_insert_idx;
  create index queues_insert_idx on pgwake.queues (name)
    where priority is not null or wakeups <> 'asleep' or status_events <> 'watched';
end
$migration$;

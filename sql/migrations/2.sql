-- Which database it is, so that a copy of it is told from it; which workers a schema
-- serves; in one index all that inserts have to know of queues; and jobs are compressed
-- when they come, not again when they end.
do $migration$
begin
  if current_setting('pgwake.installed_version')::int not between 1 and 1 then
    return;
  end if;
  perform pgwake.lock_tables(
    'pgwake.installation', 'pgwake.schema_version', 'pgwake.queues', 'pgwake.jobs_failed', 'pgwake.jobs_finished');

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

  alter table pgwake.jobs_failed alter payload set storage external, alter metadata set storage external;
  alter table pgwake.jobs_finished alter payload set storage external, alter metadata set storage external;
end
$migration$;

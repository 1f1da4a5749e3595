-- Says what is installed now. By the last statement, since a migration may have to make
-- a column for it.
insert into pgwake.schema_version as v (version, serves_from)
values (current_setting('pgwake.this_version')::int, current_setting('pgwake.serves_from')::int)
on conflict (singleton) do update
  set version = excluded.version, serves_from = excluded.serves_from, updated_at = now()
  where v.version <> excluded.version or v.serves_from <> excluded.serves_from;

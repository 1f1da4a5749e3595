-- As admit_keys. Internal: for a claim of schema 1 that is under way while the schema is
-- upgraded.
create or replace function pgwake.admit_keyed_jobs(
  queue text, count int, key_limit int, at timestamptz, from_at timestamptz, audience pgwake.audience
)
returns timestamptz
language sql volatile
set search_path = pg_catalog, pg_temp
as $$
  select pgwake.admit_keys(queue, count, key_limit, null, null, at, from_at, null, audience)
$$;

comment on function pgwake.admit_keyed_jobs is
  'Internal: admit_keys, for a claim of schema 1 that is under way.';
revoke all on function pgwake.admit_keyed_jobs from public;

-- Whether a worker that was last seen then is taken for alive: they report each ten
-- seconds, so three reports are missing when it is not. For people to look at.
create or replace function pgwake.is_live(seen_at timestamptz)
returns boolean
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select is_live.seen_at > pgwake.now() - interval '30 seconds'
$$;

comment on function pgwake.is_live is
  'Internal: whether a worker that was last seen then is taken for alive.';
revoke all on function pgwake.is_live from public;

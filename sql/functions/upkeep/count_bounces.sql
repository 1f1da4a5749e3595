-- Counts by kind what workers gave back since they don't know it: one name for each
-- such job; null and an empty array are none. Locks the kinds' rows in order of their
-- names. Rides kinds_pkey.
create or replace function pgwake.count_bounces(kinds text[])
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
begin
  insert into pgwake.kinds as k (name, bounce_count, bounced_at)
  select b.kind, count(*), pgwake.now()
  from unnest(count_bounces.kinds) as b(kind)
  where b.kind is not null
  group by b.kind
  order by b.kind
  on conflict (name) do update
  set bounce_count = k.bounce_count + excluded.bounce_count,
    bounced_at = greatest(k.bounced_at, excluded.bounced_at);
end
$$;

comment on function pgwake.count_bounces is
  'Internal: counts by kind what workers gave back since they don''t know it.';
revoke all on function pgwake.count_bounces from public;

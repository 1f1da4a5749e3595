-- The kinds that are known, by name: those that a live worker handles, that workers
-- declared or operators set policy for, and those that workers gave back since they
-- don't know them. A kind whose jobs nobody has claimed yet is not known.
--
-- declared: the policy that the newest worker declared. overrides: what operators set
-- before it. Both objects, of what is set alone. bounce_count, bounced_at: how often a
-- job was given back as of an unknown kind, and when last. live_worker_count: workers
-- seen within 30 seconds that handle it; 0 with a fresh bounced_at means that jobs of
-- this kind go round without being run.
--
-- Reads only.
create or replace function pgwake.list_kinds()
returns table (
  name text,
  declared jsonb,
  overrides jsonb,
  check_payload boolean,
  declared_version text,
  declared_by text,
  declared_at timestamptz,
  bounce_count bigint,
  bounced_at timestamptz,
  live_worker_count bigint
)
language sql stable
security definer
set search_path = pg_catalog, pg_temp
as $$
  with live as (
    select u.kind, count(distinct w.name) as worker_count
    from pgwake.workers as w
    cross join lateral unnest(w.kinds) as u(kind)
    where pgwake.is_live(w.seen_at) and u.kind is not null
    group by u.kind
  )
  select
    coalesce(k.name, l.kind) collate "C" as name,
    jsonb_strip_nulls(jsonb_build_object(
      'max_attempts', k.declared_max_attempts, 'backoff_base', k.declared_backoff_base,
      'backoff_cap', k.declared_backoff_cap, 'backoff_jitter', k.declared_backoff_jitter,
      'timeout', k.declared_timeout, 'lease', k.declared_lease, 'priority', k.declared_priority)),
    jsonb_strip_nulls(jsonb_build_object(
      'max_attempts', k.max_attempts, 'backoff_base', k.backoff_base, 'backoff_cap', k.backoff_cap,
      'backoff_jitter', k.backoff_jitter, 'timeout', k.timeout, 'lease', k.lease,
      'priority', k.priority,
      -- columns that an upgrade adds after this is read
      'max_running', to_jsonb(k) -> 'max_running', 'rate_limit', to_jsonb(k) -> 'rate_limit',
      'rate_burst', to_jsonb(k) -> 'rate_burst')),
    coalesce(k.check_payload, false),
    array_to_string(k.declared_version, '.'),
    k.declared_by, k.declared_at, coalesce(k.bounce_count, 0), k.bounced_at, coalesce(l.worker_count, 0)
  from pgwake.kinds as k
  full join live as l on l.kind = k.name
  order by 1
$$;

comment on function pgwake.list_kinds is
  'The kinds that are known, their policy, and how many live workers handle them.';
revoke all on function pgwake.list_kinds from public;

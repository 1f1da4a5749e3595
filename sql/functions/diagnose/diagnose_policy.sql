-- For diagnose: policy that can't be meant.
--
-- policy  warning  values of a queue or a kind that don't go together
create or replace function pgwake.diagnose_policy()
returns setof pgwake.finding
language plpgsql stable
set search_path = pg_catalog, pg_temp
set jit = off
as $$
begin
  return query
  select 'policy', 'warning', f.name, format('the %s %s: %s', f.what, pgwake.say_name(f.name), f.problem),
    format('update pgwake.%ss set %s where name = %L;', f.what, f.change, f.name), null::double precision
  from (
    select 'queue' as what, q.name, p.problem, p.change
    from pgwake.queues as q
    cross join lateral (
      values
        (q.lease < interval '10 seconds', 'one slow renewal loses a lease of under 10 s', 'lease = null'),
        (coalesce(q.backoff_base, interval '1 second') > coalesce(q.backoff_cap, interval '1 hour'),
         'backoff_base is above backoff_cap, so all retries wait for the cap', 'backoff_base = backoff_cap'),
        (q.keep_order and q.key_limit > 1, 'keep_order needs a key_limit of 1', 'key_limit = 1'),
        (q.key_limit > q.max_running, 'key_limit is above max_running, and never reached', 'key_limit = max_running'),
        (q.key_rate > q.rate_limit, 'key_rate is above rate_limit, and never reached', 'key_rate = rate_limit'),
        (q.key_burst is not null and q.key_rate is null and not exists (
           select from pgwake.concurrency_limits as c where c.queue = q.name and c.rate_limit is not null),
         'key_burst is for keys with a rate, and none has one: set key_rate', 'key_burst = null')
    ) as p(is_so, problem, change)
    where p.is_so
    union all
    select 'kind', k.name, p.problem, p.change
    from pgwake.kinds as k
    cross join lateral (
      values
        (k.lease < interval '10 seconds', 'one slow renewal loses a lease of under 10 s', 'lease = null'),
        (coalesce(k.backoff_base, k.declared_backoff_base) > coalesce(k.backoff_cap, k.declared_backoff_cap),
         'backoff_base is above backoff_cap, so all retries wait for the cap',
         'backoff_base = coalesce(backoff_cap, declared_backoff_cap)'),
        (k.check_payload and k.declared_schema is null,
         'its payloads are to be checked, and no worker has declared what they are', 'check_payload = false'),
        (k.max_running = 0, 'max_running is 0, so none of its jobs is started', 'max_running = null')
    ) as p(is_so, problem, change)
    where p.is_so
  ) as f
  order by f.what, f.name
  limit 10;
end
$$;

comment on function pgwake.diagnose_policy is
  'Internal: for diagnose, policy that can''t be meant.';
revoke all on function pgwake.diagnose_policy from public;

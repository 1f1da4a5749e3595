-- What holds for a job's attempts, by its queue and kind: what an operator set for the
-- kind, else what the newest worker declared for it, else the queue's, else the default.
-- A job's own max_attempts comes before all of them, and is the caller's to look at.
--
-- timeout is null where there is none. Internal. Rides queues_pkey and kinds_pkey.
create or replace function pgwake.get_policy(
  queue text,
  kind text,
  out max_attempts int,
  out max_crashes int,
  out backoff_base interval,
  out backoff_cap interval,
  out backoff_jitter double precision,
  out timeout interval,
  out lease interval,
  out priority smallint,
  out keep_order boolean
)
returns record
language plpgsql stable
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
begin
  select
    coalesce(k.max_attempts, k.declared_max_attempts, q.max_attempts, 20),
    coalesce(q.max_crashes, 5),
    coalesce(k.backoff_base, k.declared_backoff_base, q.backoff_base, interval '1 second'),
    coalesce(k.backoff_cap, k.declared_backoff_cap, q.backoff_cap, interval '1 hour'),
    coalesce(k.backoff_jitter, k.declared_backoff_jitter, q.backoff_jitter, 1),
    coalesce(k.timeout, k.declared_timeout, q.timeout),
    coalesce(k.lease, k.declared_lease, q.lease, interval '5 minutes'),
    coalesce(k.priority, k.declared_priority, q.priority, 0),
    coalesce(q.keep_order, false)
  into get_policy.max_attempts, get_policy.max_crashes, get_policy.backoff_base, get_policy.backoff_cap,
    get_policy.backoff_jitter, get_policy.timeout, get_policy.lease, get_policy.priority,
    get_policy.keep_order
  from (values (get_policy.queue, get_policy.kind)) as v(queue, kind)
  left join pgwake.queues as q on q.name = v.queue
  left join pgwake.kinds as k on k.name = v.kind;
end
$$;

comment on function pgwake.get_policy is
  'Internal: what holds for a job''s attempts, by its queue and kind.';
revoke all on function pgwake.get_policy from public;

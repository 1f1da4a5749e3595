-- For explain_job: the policy that holds for a job, a line each value, with who has set
-- it: the job itself, an operator for its kind, its kind (as the newest worker declared
-- it), its queue, or nobody (the default). As get_policy reads it. Rides queues_pkey and
-- kinds_pkey.
create or replace function pgwake.explain_policy(job pgwake.jobs_live)
returns text[]
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  v_queue pgwake.queues;
  v_kind pgwake.kinds;
begin
  select q.* into v_queue from pgwake.queues as q where q.name = job.queue;
  select k.* into v_kind from pgwake.kinds as k where k.name = job.kind;
  return array(
    select
      format('%s %s (%s)', p.name, coalesce(p.job, p.operator, p.kind, p.queue, p.otherwise),
        case
          when p.job is not null then 'job'
          when p.operator is not null then 'operator'
          when p.kind is not null then 'kind'
          when p.queue is not null then 'queue'
          else 'default'
        end)
    from (
      values
        (1, 'max_attempts', job.max_attempts::text, v_kind.max_attempts::text,
          v_kind.declared_max_attempts::text, v_queue.max_attempts::text, '20'),
        (2, 'max_crashes', null, null, null, v_queue.max_crashes::text, '5'),
        (3, 'backoff_base', null, v_kind.backoff_base::text,
          v_kind.declared_backoff_base::text, v_queue.backoff_base::text, (interval '1 second')::text),
        (4, 'backoff_cap', null, v_kind.backoff_cap::text,
          v_kind.declared_backoff_cap::text, v_queue.backoff_cap::text, (interval '1 hour')::text),
        (5, 'backoff_jitter', null, v_kind.backoff_jitter::text,
          v_kind.declared_backoff_jitter::text, v_queue.backoff_jitter::text, '1'),
        (6, 'timeout', null, v_kind.timeout::text,
          v_kind.declared_timeout::text, v_queue.timeout::text, 'none'),
        (7, 'lease', null, v_kind.lease::text,
          v_kind.declared_lease::text, v_queue.lease::text, (interval '5 minutes')::text)
    ) as p(place, name, job, operator, kind, queue, otherwise)
    order by p.place);
end
$$;

comment on function pgwake.explain_policy is
  'Internal: for explain_job, the policy that holds for a job, and who has set it.';
revoke all on function pgwake.explain_policy from public;

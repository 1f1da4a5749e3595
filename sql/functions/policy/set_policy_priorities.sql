-- Gives jobs that have just come with priority 0 the priority of their kind, as an
-- operator set it or a worker declared it, else of their queue (as get_policy says).
-- Internal, for after_insert_jobs. Rides jobs_live_pkey.
create or replace function pgwake.set_policy_priorities(job_ids bigint[])
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
begin
  update pgwake.jobs_live as j
  set priority = p.priority
  from (
    select n.id, coalesce(k.priority, k.declared_priority, q.priority) as priority
    from pgwake.jobs_live as n
    left join pgwake.kinds as k on k.name = n.kind
    left join pgwake.queues as q on q.name = n.queue
    where n.id = any (set_policy_priorities.job_ids)
  ) as p
  where j.id = any (set_policy_priorities.job_ids) and j.id = p.id and p.priority <> 0;
end
$$;

comment on function pgwake.set_policy_priorities is
  'Internal: gives new jobs the priority of their kind or queue.';
revoke all on function pgwake.set_policy_priorities from public;

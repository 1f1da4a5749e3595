-- Whether nobody would look at a job again that has_parents_left: it has no recheck, and
-- nothing that it waits for is still to come. Internal. Plain SQL without a set clause, so
-- that the planner puts it inline. Rides rechecks_child_idx, dependencies_child_idx,
-- waits_pkey, events_pkey and jobs_live_pkey.
create or replace function pgwake.is_lost_child(job_id bigint)
returns boolean
language sql stable
as $$
  select not exists (select from pgwake.rechecks as r where r.child_id operator(pg_catalog.=) is_lost_child.job_id)
    and not exists (
      select from pgwake.dependencies as d
      join pgwake.jobs_live as p on p.id operator(pg_catalog.=) d.parent_id
      where d.child_id operator(pg_catalog.=) is_lost_child.job_id)
    and not exists (
      select from pgwake.waits as w
      where w.job_id operator(pg_catalog.=) is_lost_child.job_id and w.deadline is null
        and not exists (select from pgwake.events as e where e.name operator(pg_catalog.=) w.event)
        and (w.other_id is null
          or exists (select from pgwake.jobs_live as p where p.id operator(pg_catalog.=) w.other_id)))
$$;

comment on function pgwake.is_lost_child is
  'Internal: whether nobody would look at a job again that waits for others.';
revoke all on function pgwake.is_lost_child from public;

-- Flags the children of parents that have ended for a recheck, and wakes their queues.
-- Internal: called in the transaction of the end, in a statement after it, for jobs that
-- has_children. have_failed: they ended otherwise than completed.
--
-- No lock but that of its rows in pgwake.dependencies and its own new rows', so nobody
-- waits for whoever ends a job, and it can't deadlock. Whoever claims next checks the
-- children: see admit_children. Rides dependencies_pkey and jobs_live_pkey.
create or replace function pgwake.flag_children(parent_ids bigint[], have_failed boolean)
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
  v_queues text[];
begin
  with gone as (
    delete from pgwake.dependencies as d where d.parent_id = any (flag_children.parent_ids)
    returning d.parent_id, d.child_id
  ),
  flagged as (
    insert into pgwake.rechecks (queue, at, child_id, parent_id, has_failed)
    select c.queue, pgwake.now(), c.id, c.parent_id, flag_children.have_failed
    from (
      -- Who completed does not matter, who failed does: a child may have other parents by now. No join, since callers
      -- have set what joins there are.
      select g.child_id as id, min(g.parent_id) as parent_id,
        (select j.queue from pgwake.jobs_live as j where j.id = g.child_id) as queue
      from gone as g
      group by g.child_id, case when flag_children.have_failed then g.parent_id end
    ) as c
    where c.queue is not null
    returning queue
  )
  select array_agg(distinct f.queue) into v_queues from flagged as f;
  perform pgwake.wake(q.name) from unnest(v_queues) as q(name);
end
$$;

comment on function pgwake.flag_children is
  'Internal: flags the children of parents that have ended for a recheck.';
revoke all on function pgwake.flag_children from public;

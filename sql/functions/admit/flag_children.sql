-- Sees to the children of parents that have ended: admits those that have no parent left,
-- and flags the others for a recheck; and to the jobs that wait for these ends by
-- await_job. Wakes their queues. Internal: called in the
-- transaction of the end, in a statement after it, for jobs that has_children.
-- have_failed: they ended otherwise than completed; then all are flagged.
--
-- Admits up to 500 that nobody else has locked. One of them that has parents left needs no
-- recheck: who ends those sees to it, as does who has it locked now. Whoever claims next
-- checks the flagged ones: see admit_children. Under repeatable read all are flagged.
--
-- Locks its rows in pgwake.dependencies and free children, so nobody waits for whoever
-- ends a job, and it can't deadlock. Rides dependencies_pkey and jobs_live_pkey.
create or replace function pgwake.flag_children(parent_ids bigint[], have_failed boolean)
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_nestloop = off
set jit = off
as $$
declare
  v_children bigint[];
  v_parents bigint[];
  v_mine bigint[] := '{}';
  v_queues text[];
begin
  perform pgwake.wake_waits(null, flag_children.parent_ids);
  with gone as (
    delete from pgwake.dependencies as d where d.parent_id = any (flag_children.parent_ids)
    returning d.parent_id, d.child_id
  )
  select array_agg(g.child_id), array_agg(g.parent_id) into v_children, v_parents from gone as g;
  if not flag_children.have_failed and current_setting('transaction_isolation') = 'read committed' then
    v_mine := array(
      select j.id from pgwake.jobs_live as j where j.id = any (v_children[:500]) and j.has_parents_left
      order by j.id
      for update skip locked);
    perform pgwake.admit_free_children(
      v_mine, pgwake.now(), clock_timestamp() + (pgwake.now() - now()), pgwake.get_audience());
  end if;
  with flagged as (
    insert into pgwake.rechecks (queue, at, child_id, parent_id, has_failed)
    select c.queue, pgwake.now(), c.id, c.parent_id, flag_children.have_failed
    from (
      -- Who completed does not matter, who failed does: a child may have other parents by now.
      select u.child as id, min(u.parent) as parent_id,
        (select j.queue from pgwake.jobs_live as j where j.id = u.child) as queue
      from unnest(v_children, v_parents) as u(child, parent)
      where not exists (select from unnest(v_mine) as m(id) where m.id = u.child)
      group by u.child, case when flag_children.have_failed then u.parent end
    ) as c
    where c.queue is not null
    returning queue
  )
  select array_agg(distinct f.queue) into v_queues from flagged as f;
  perform pgwake.wake(q.name) from unnest(v_queues) as q(name);
end
$$;

comment on function pgwake.flag_children is
  'Internal: admits the children of parents that have ended, or flags them for a recheck.';
revoke all on function pgwake.flag_children from public;

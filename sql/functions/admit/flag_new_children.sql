-- Has jobs that have just come wait for their parents: checks that there are such, and
-- writes a recheck of each child. Internal: for jobs_live rows of the caller's own
-- transaction that has_parents_left; called for all of a statement, so that parents may
-- come in the same one. The caller wakes the queues.
--
-- Raises PW003 for a parent that does not exist, or is not older than its child: so
-- there are no cycles. No lock but its own new rows', so it may be called in anybody's
-- transaction: how the parents stand is the recheck's to find out; see admit_children.
create or replace function pgwake.flag_new_children(child_ids bigint[])
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
  v_parents bigint[];
  v_child record;
begin
  select array_agg(distinct p.id) into v_parents
  from pgwake.jobs_live as j
  cross join lateral unnest(j.depends_on) as p(id)
  where j.id = any (flag_new_children.child_ids);

  with known as materialized (
    select j.id from pgwake.jobs_live as j where j.id = any (v_parents)
    union all
    select j.id from pgwake.jobs_failed as j where j.id = any (v_parents)
    union all
    select j.id from pgwake.jobs_finished as j where j.id = any (v_parents)
  )
  select j.id, p.id as parent, k.id as known into v_child
  from pgwake.jobs_live as j
  cross join lateral unnest(j.depends_on) as p(id)
  left join known as k on k.id = p.id
  where j.id = any (flag_new_children.child_ids) and (k.id is null or k.id >= j.id)
  order by j.id, p.id
  limit 1;
  if found then
    perform pgwake.raise_invalid(
      format(
        'job %s depends on job %s, which %s', v_child.id, coalesce(v_child.parent::text, 'null'),
        case when v_child.known is null then 'does not exist' else 'is not older' end),
      'Add the parents first and pass the ids that they got; ended jobs are gone after their retention.');
  end if;

  insert into pgwake.rechecks (queue, at, child_id)
  select j.queue, pgwake.now(), j.id
  from pgwake.jobs_live as j
  where j.id = any (flag_new_children.child_ids);
end
$$;

comment on function pgwake.flag_new_children is
  'Internal: has jobs that have just come wait for their parents.';
revoke all on function pgwake.flag_new_children from public;

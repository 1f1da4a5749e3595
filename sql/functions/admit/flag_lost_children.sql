-- Writes a recheck for each child that nobody would look at again: it waits, it has no
-- recheck, and nothing that it is known to wait for is still to come. Rows that came
-- without the others' are so: of a replica, of a restore of data alone, whose row
-- trigger has a child wait again, or where rows of rechecks were lost. Internal, for
-- recheck_children.
--
-- At most max_children a call, in order of id; the next call of the session goes on
-- where this one has stopped (the setting pgwake.children_from). Returns the queues of
-- those that it flagged. Rides jobs_children_idx and waits_pkey; see is_lost_child.
create or replace function pgwake.flag_lost_children(max_children int default 1000)
returns text[]
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
as $$
declare
  v_from bigint := nullif(current_setting('pgwake.children_from', true), '');
  v_count bigint;
  v_queues text[];
begin
  with seen as materialized (
    select j.id, j.queue
    from pgwake.jobs_live as j
    where j.has_parents_left and j.id > coalesce(v_from, -9223372036854775808)
    order by j.id
    limit flag_lost_children.max_children
  ),
  flagged as (
    insert into pgwake.rechecks (queue, at, child_id, parent_id, has_failed)
    select s.queue, pgwake.now(), s.id, w.job_id, case when w.job_id is not null then false end
    from seen as s
    left join pgwake.waits as w on w.job_id = s.id
    where pgwake.is_lost_child(s.id)
    returning queue
  )
  select count(*), max(s.id), (select array_agg(distinct f.queue) from flagged as f)
  into v_count, v_from, v_queues
  from seen as s;
  perform set_config(
    'pgwake.children_from',
    case when v_count < flag_lost_children.max_children then '' else v_from::text end, false);
  perform pgwake.wake(q.name) from unnest(v_queues) as q(name);
  return coalesce(v_queues, '{}');
end
$$;

comment on function pgwake.flag_lost_children is
  'Internal: flags children that nobody would look at again.';
revoke all on function pgwake.flag_lost_children from public;

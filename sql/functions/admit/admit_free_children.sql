-- Admits those of some children that have no parent left: no row in
-- pgwake.dependencies, and no recheck that tells something. Internal, for
-- admit_children, which has locked them before this snapshot, so that both come by
-- nobody else. at: of the counts; now: when their turn begins.
create or replace function pgwake.admit_free_children(
  child_ids bigint[], at timestamptz, now timestamptz, audience pgwake.audience
)
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set enable_nestloop = off
set jit = off
as $$
#variable_conflict use_column
declare
  v_admitted bigint[];
  v_queues text[];
  v_events text[];
begin
  v_admitted := array(
    select m.id
    from unnest(admit_free_children.child_ids) as m(id)
    where (select d.parent_id from pgwake.dependencies as d where d.child_id = m.id order by d.parent_id desc limit 1)
        is null
      and (select true from pgwake.rechecks as r where r.child_id = m.id and r.has_failed is not false limit 1)
        is null);
  if v_admitted = '{}' then
    return;
  end if;
  with admitted as (
    update pgwake.jobs_live as j
    set has_parents_left = null,
      status = case when j.concurrency_key is null then 'pending' else 'waiting' end,
      run_at = case when j.concurrency_key is null then greatest(j.run_at, admit_free_children.now) else j.run_at end
    where j.id = any (v_admitted)
    returning j.id, j.queue, j.kind, j.status, j.run_at, j.concurrency_key
  ),
  counted as (
    insert into pgwake.counts (queue, at, waiting_rows)
    select o.queue, admit_free_children.at, -count(*)
    from admitted as o
    where o.status = 'pending'
    group by o.queue
  ),
  key_rechecks as (
    insert into pgwake.rechecks (queue, at, key)
    select o.queue, greatest(min(o.run_at), admit_free_children.at), o.concurrency_key
    from admitted as o
    where o.concurrency_key is not null
    group by o.queue, o.concurrency_key
  )
  select array_agg(distinct o.queue),
    array_agg(pgwake.status_event(o.id, o.queue, o.kind, 'waiting', o.status))
      filter (where o.status = 'pending' and pgwake.is_announced(o.queue, admit_free_children.audience))
  into v_queues, v_events
  from admitted as o;
  perform pgwake.wake(q.name) from unnest(v_queues) as q(name);
  perform pgwake.announce(v_events);
end
$$;

comment on function pgwake.admit_free_children is
  'Internal: admits those of some children that have no parent left.';
revoke all on function pgwake.admit_free_children from public;

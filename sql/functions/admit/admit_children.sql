-- Admits jobs that wait for parents that have ended: makes children pending, or cancels
-- them, as far as rechecks of the queue say that are due. Internal, for claim_batch and
-- recheck_children. A child with a concurrency key goes on waiting, for the key.
--
-- A parent that failed, was cancelled or is gone cancels its child, unless the child's
-- on_parent_failure is run. The child's own children are cancelled so too, by rechecks.
-- One that can't be moved (a user's trigger raises) is left for a minute, with a
-- warning.
--
-- No child waits for ever, and none is admitted too early:
--   Who adds a child, or brings it back, writes a recheck without a parent in the same
--   transaction; a child that has such a recheck left, or one of a parent that failed,
--   is not admitted. Whoever takes it sees to each parent. A live one is locked, gets
--   has_children and a row in pgwake.dependencies, in one transaction. So who ends it
--   comes either before, and it is seen to have ended, or after, and finds the row:
--   read committed, his DELETE waits for our commit and answers with has_children, and
--   his next statement sees the row. Under repeatable read with an older snapshot his
--   DELETE fails (40001) and is repeated: for that the parent gets a new version even
--   if it had has_children. One that somebody has locked gets a row too, and a recheck
--   that names it, to see it again. Neither is deleted before it has been locked, or
--   seen to have ended. Who ends a parent deletes its rows, and writes a recheck in the
--   same transaction. A child without rows, as seen by a snapshot later than the
--   child's lock, has no parent left: rows come only by who holds that lock. How
--   parents stand that could not be locked is read by one statement, so that none is
--   missed on its way from one leaf to another.
--
-- Not under repeatable read, where no snapshot is later: then the rechecks are left to
-- others. Locks children, then their parents, to the end of the transaction; skips
-- locked ones (their rechecks come again after 50 milliseconds), so it waits for
-- nobody. Who ends one of these parents waits for us.
--
-- Handles about max_rechecks rechecks. from_at: rechecks before it are known to be
-- dead. recheck_at: the time of the first child's recheck that is due and left, else
-- null. Rides rechecks_due_idx, jobs_live_pkey, dependencies_pkey,
-- dependencies_child_idx, rechecks_child_idx, and for ended parents the primary keys of
-- the leaves. Arrays, of up to thousands, are joined by hashes, and what is looked up
-- is a subquery a row: hence no nested loops.
create or replace function pgwake.admit_children(
  queue text,
  at timestamptz,
  from_at timestamptz,
  max_rechecks int,
  audience pgwake.audience,
  out recheck_at timestamptz,
  out recheck_count int
)
returns record
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
  v_now timestamptz := greatest(admit_children.at, clock_timestamp() + (pgwake.now() - now()));
  v_later timestamptz := v_now + interval '50 milliseconds';
  v_child record;

  -- The rechecks of a round: what they say.
  v_tids tid[];
  v_children bigint[];
  v_parents bigint[];
  v_failed boolean[];

  v_mine bigint[];   -- children that we have locked
  v_fresh bigint[];  -- those of them whose parents are all to be seen: some thousand parents

  -- Who waits for whom, as far as it is to be seen, and how those parents stand.
  v_pair_children bigint[];
  v_pair_parents bigint[];
  v_had bigint[];     -- live, locked by us
  v_not_had bigint[];
  v_locked bigint[];  -- live, locked by another
  v_lost bigint[];    -- failed, cancelled or gone; the others have completed

  v_admitted bigint[];
  v_queues text[];
  v_events text[];
begin
  recheck_count := 0;
  while recheck_count < admit_children.max_rechecks and current_setting('transaction_isolation') = 'read committed' loop
    select array_agg(r.tid), array_agg(r.child_id), array_agg(r.parent_id), array_agg(r.has_failed)
    into v_tids, v_children, v_parents, v_failed
    from (
      select r.ctid as tid, r.child_id, r.parent_id, r.has_failed
      from pgwake.rechecks as r
      where r.queue = admit_children.queue and r.at >= admit_children.from_at and r.at <= admit_children.at
        and r.child_id is not null
      order by r.at
      limit least(admit_children.max_rechecks - recheck_count, 1000)
      for update skip locked
    ) as r;
    exit when v_tids is null;

    v_mine := array(
      select j.id from pgwake.jobs_live as j where j.id = any (v_children) and j.has_parents_left
      order by j.id
      for update skip locked);
    v_fresh := array(
      select f.id
      from (
        select j.id, sum(cardinality(j.depends_on)) over (order by j.id) - cardinality(j.depends_on) as parents_before
        from pgwake.jobs_live as j
        where j.id = any (v_mine) and j.id = any (array(
          select u.child from unnest(v_children, v_parents) as u(child, parent) where u.parent is null))
      ) as f
      where f.parents_before < 1000);

    select array_agg(p.child), array_agg(p.parent) into v_pair_children, v_pair_parents
    from (
      select j.id as child, unnest(j.depends_on) as parent
      from pgwake.jobs_live as j
      where j.id = any (v_fresh)
      union
      select u.child, u.parent
      from unnest(v_children, v_parents, v_failed) as u(child, parent, has_failed)
      where u.has_failed is null and u.child = any (v_mine)
        and (select true from pgwake.dependencies as d where d.parent_id = u.parent and d.child_id = u.child)
    ) as p;
    v_locked := '{}';
    v_lost := '{}';
    if v_pair_parents is not null then
      v_had := array(
        select j.id from pgwake.jobs_live as j where j.id = any (v_pair_parents)
        order by j.id
        for update skip locked);
      update pgwake.jobs_live as j set has_children = true where j.id = any (v_had);
      v_not_had := array(
        select u.id from unnest(v_pair_parents) as u(id) except select h.id from unnest(v_had) as h(id));
      if v_not_had <> '{}' then
        with known as materialized (
          select j.id, j.status from pgwake.jobs_live as j where j.id = any (v_not_had)
          union all
          select j.id, j.status from pgwake.jobs_failed as j where j.id = any (v_not_had)
          union all
          select j.id, j.status from pgwake.jobs_finished as j where j.id = any (v_not_had)
        )
        select
          coalesce(array_agg(u.id) filter (where k.status in ('waiting', 'pending', 'running')), '{}'),
          coalesce(array_agg(u.id) filter (where k.id is null or k.status in ('failed', 'cancelled')), '{}')
        into v_locked, v_lost
        from unnest(v_not_had) as u(id)
        left join known as k on k.id = u.id;
      end if;

      -- Of a child that came again with other parents, the rows of those that it had. One that is locked belongs to
      -- a parent that is being ended: it goes by that.
      delete from pgwake.dependencies as d
      where d.ctid = any (array(
        select o.ctid
        from pgwake.dependencies as o
        where o.child_id = any (v_fresh) and not exists (
          select from unnest(v_pair_children, v_pair_parents) as p(child, parent)
          where p.child = o.child_id and p.parent = o.parent_id)
        for update of o skip locked));
      with pairs as materialized (
        select p.child, p.parent, l.id is not null as is_locked, h.id is not null as is_had,
          (select d.ctid from pgwake.dependencies as d where d.parent_id = p.parent and d.child_id = p.child) as tid
        from unnest(v_pair_children, v_pair_parents) as p(child, parent)
        left join unnest(v_had) as h(id) on h.id = p.parent
        left join unnest(v_locked) as l(id) on l.id = p.parent
      ),
      ended as (
        delete from pgwake.dependencies as d
        where d.ctid = any (array(select p.tid from pairs as p where not p.is_had and not p.is_locked))
      ),
      seen_again as (
        insert into pgwake.rechecks (queue, at, child_id, parent_id)
        select admit_children.queue, v_later, p.child, p.parent
        from pairs as p
        where p.is_locked and p.child = any (v_fresh)
      )
      insert into pgwake.dependencies (parent_id, child_id)
      select p.parent, p.child from pairs as p where p.tid is null and (p.is_had or p.is_locked);
    end if;

    -- A recheck that stays: at a child that is locked, at one whose parents are too many for this round, or at a parent
    -- that is still locked.
    with rechecks as materialized (
      select u.tid,
        case
          when u.child <> all (v_mine) then (
            select true from pgwake.jobs_live as j where j.id = u.child and j.has_parents_left)
          else u.parent is not null and u.has_failed is null and u.parent = any (v_locked)
        end is true as comes_again,
        u.parent is null and u.child = any (v_mine) and u.child <> all (v_fresh) as is_left
      from unnest(v_tids, v_children, v_parents, v_failed) as u(tid, child, parent, has_failed)
    ),
    put_off as (
      update pgwake.rechecks as r set at = v_later
      where r.ctid = any (array(select u.tid from rechecks as u where u.comes_again))
    ),
    gone as (
      delete from pgwake.rechecks as r
      where r.ctid = any (array(select u.tid from rechecks as u where not u.comes_again and not u.is_left))
    )
    select recheck_count + count(*) into recheck_count from rechecks as u where not u.is_left;

    if v_lost <> '{}' or true = any (v_failed) then
      for v_child in
        select f.child as id, min(f.parent) as parent
        from (
          select p.child, p.parent
          from unnest(v_pair_children, v_pair_parents) as p(child, parent)
          where p.parent = any (v_lost)
          union all
          select u.child, u.parent
          from unnest(v_children, v_parents, v_failed) as u(child, parent, has_failed)
          where u.has_failed and u.child = any (v_mine)
            and (select u.parent = any (j.depends_on) from pgwake.jobs_live as j where j.id = u.child)
        ) as f
        where (select j.on_parent_failure is distinct from 'run' from pgwake.jobs_live as j where j.id = f.child)
        group by f.child
        order by f.child
      loop
        begin
          perform pgwake.end_job(
            v_child.id, 'cancelled', 'parent_failed', format('parent %s did not complete', v_child.parent));
          set constraints all immediate;  -- not at the commit, which would refuse the whole claim
          set constraints all deferred;
        exception when others then
          raise warning 'job % can not be cancelled: %', v_child.id, sqlerrm;
          insert into pgwake.rechecks (queue, at, child_id, parent_id, has_failed)
          values (admit_children.queue, v_now + interval '1 minute', v_child.id, v_child.parent, true);
        end;
      end loop;
    end if;

    v_admitted := array(
      select m.id
      from unnest(v_mine) as m(id)
      where (select d.parent_id from pgwake.dependencies as d where d.child_id = m.id order by d.parent_id desc limit 1)
          is null
        and (select true from pgwake.rechecks as r where r.child_id = m.id and r.has_failed is not false limit 1)
          is null);
    continue when v_admitted = '{}';
    with admitted as (
      update pgwake.jobs_live as j
      set has_parents_left = null,
        status = case when j.concurrency_key is null then 'pending' else 'waiting' end,
        run_at = case when j.concurrency_key is null then greatest(j.run_at, v_now) else j.run_at end
      where j.id = any (v_admitted)
      returning j.id, j.queue, j.kind, j.status, j.run_at, j.concurrency_key
    ),
    counted as (
      insert into pgwake.counts (queue, at, waiting_rows)
      select o.queue, admit_children.at, -count(*)
      from admitted as o
      where o.status = 'pending'
      group by o.queue
    ),
    key_rechecks as (
      insert into pgwake.rechecks (queue, at, key)
      select o.queue, greatest(min(o.run_at), admit_children.at), o.concurrency_key
      from admitted as o
      where o.concurrency_key is not null
      group by o.queue, o.concurrency_key
    )
    select array_agg(distinct o.queue),
      array_agg(pgwake.status_event(o.id, o.queue, o.kind, 'waiting', o.status))
        filter (where o.status = 'pending' and pgwake.is_announced(o.queue, admit_children.audience))
    into v_queues, v_events
    from admitted as o;
    perform pgwake.wake(q.name) from unnest(v_queues) as q(name);
    perform pgwake.announce(v_events);
  end loop;

  select r.at into recheck_at
  from pgwake.rechecks as r
  where r.queue = admit_children.queue and r.at >= admit_children.from_at and r.at <= admit_children.at
    and r.child_id is not null
  order by r.at
  limit 1;
end
$$;

comment on function pgwake.admit_children is
  'Internal: admits jobs that wait for parents that have ended.';
revoke all on function pgwake.admit_children from public;

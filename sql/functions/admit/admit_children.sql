-- Admits jobs that wait for parents that have ended: makes children pending, or cancels
-- them, as far as rechecks of the queue say that are due. Internal, for claim_rows and
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
--   is not admitted. Whoever takes it sees to each parent, or notes in place of one how
--   many have been seen to (above no_ids), for the next call. A live one is locked, gets
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
-- max_rechecks bounds the rechecks, and the parents of children that have just come: of
-- 10,000 parents many calls see to a part each, in turns with other children of the
-- queue. recheck_count: the larger of both. from_at: rechecks before it are known to be
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
  v_no_ids constant bigint := -9223372036854775808;  -- and the 10,000 above it
  v_child record;
  v_limit int;  -- of rechecks, and of parents

  -- The rechecks of a round: what they say.
  v_tids tid[];
  v_children bigint[];
  v_parents bigint[];
  v_failed boolean[];

  v_mine bigint[];   -- children that we have locked
  v_fresh bigint[];  -- those of them that have just come, as far as v_limit goes
  v_new bigint[];    -- those of which no parent was seen to before
  v_partial bigint;  -- the last of them, if v_limit was reached
  v_seen bigint;     -- how many of its parents have been seen to
  v_seen_rows int;   -- how many parents this round sees to

  -- Who waits for whom, as far as it is to be seen, and how those parents stand.
  v_pair_children bigint[];
  v_pair_parents bigint[];
  v_had bigint[];     -- live, locked by us
  v_not_had bigint[];
  v_locked bigint[];  -- live, locked by another
  v_lost bigint[];    -- failed, cancelled or gone; the others have completed
begin
  recheck_count := 0;
  while recheck_count < admit_children.max_rechecks and current_setting('transaction_isolation') = 'read committed' loop
    v_limit := least(admit_children.max_rechecks - recheck_count, 1000);
    select array_agg(r.tid), array_agg(r.child_id), array_agg(r.parent_id), array_agg(r.has_failed)
    into v_tids, v_children, v_parents, v_failed
    from (
      select r.ctid as tid, r.child_id, r.parent_id, r.has_failed
      from pgwake.rechecks as r
      where r.queue = admit_children.queue and r.at >= admit_children.from_at and r.at <= admit_children.at
        and r.child_id is not null
      order by r.at
      limit v_limit
      for update skip locked
    ) as r;
    exit when v_tids is null;

    v_mine := array(
      select j.id from pgwake.jobs_live as j where j.id = any (v_children) and j.has_parents_left
      order by j.id
      for update skip locked);
    with fresh as materialized (
      select f.*, row_number() over (order by f.first_place) as place
      from (
        select u.child, min(coalesce(u.parent - v_no_ids, 0)) as seen, min(u.place) as first_place
        from unnest(v_children, v_parents) with ordinality as u(child, parent, place)
        where u.child = any (v_mine) and coalesce(u.parent, v_no_ids) <= v_no_ids + 10000
        group by u.child
      ) as f
    ),
    seen as materialized (  -- the parents of a child are read only if its turn comes
      select f.child, f.place, f.seen + p.n as seen, p.parent
      from (select * from fresh as f order by f.place) as f
      cross join lateral (
        select j.depends_on[f.seen::int + 1 : f.seen::int + v_limit] as parents
        from pgwake.jobs_live as j where j.id = f.child
        offset 0
      ) as j
      cross join lateral unnest(j.parents) with ordinality as p(parent, n)
      limit v_limit
    ),
    pairs as (
      select s.child, s.parent from seen as s
      union
      select u.child, u.parent
      from unnest(v_children, v_parents, v_failed) as u(child, parent, has_failed)
      where u.has_failed is null and u.child = any (v_mine)
        and (select true from pgwake.dependencies as d where d.parent_id = u.parent and d.child_id = u.child)
    )
    select p.children, p.parents, f.children, f.new_children, f.partial, f.seen, f.seen_rows
    into v_pair_children, v_pair_parents, v_fresh, v_new, v_partial, v_seen, v_seen_rows
    from (select array_agg(p.child) as children, array_agg(p.parent) as parents from pairs as p) as p
    cross join (
      select coalesce(array_agg(f.child), '{}') as children,
        coalesce(array_agg(f.child) filter (where f.seen = 0), '{}') as new_children,
        max(f.child) filter (where f.place = l.place) as partial, max(l.seen) as seen, max(l.seen_rows) as seen_rows
      from fresh as f
      cross join (
        select case when count(*) = v_limit then max(s.place) end as place, count(*) as seen_rows,
          (array_agg(s.seen order by s.place desc, s.seen desc))[1] as seen
        from seen as s
      ) as l
      where (f.place <= l.place) is not false
    ) as f;
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
        where o.child_id = any (v_new) and not exists (
          select from (
            select j.id as child, unnest(j.depends_on) as parent from pgwake.jobs_live as j where j.id = any (v_new)
          ) as p
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

    -- A recheck stays at a child that is locked or has parents left for the next, and at a parent still locked.
    with rechecks as materialized (
      select u.tid,
        case
          when u.child <> all (v_mine) then (
            select true from pgwake.jobs_live as j where j.id = u.child and j.has_parents_left)
          else u.parent is not null and u.has_failed is null and u.parent = any (v_locked)
        end is true as comes_again,
        case when coalesce(u.parent, v_no_ids) <= v_no_ids + 10000 and u.child = any (v_mine) then
          u.child <> all (v_fresh) or u.child = v_partial
        end is true as is_left,
        u.child
      from unnest(v_tids, v_children, v_parents, v_failed) as u(tid, child, parent, has_failed)
    ),
    put_off as (
      update pgwake.rechecks as r set at = v_later
      where r.ctid = any (array(select u.tid from rechecks as u where u.comes_again))
    ),
    noted as (
      update pgwake.rechecks as r set at = v_now, parent_id = v_no_ids + v_seen
      where r.ctid = any (array(select u.tid from rechecks as u where u.is_left and u.child = v_partial))
    ),
    gone as (
      delete from pgwake.rechecks as r
      where r.ctid = any (array(select u.tid from rechecks as u where not u.comes_again and not u.is_left))
    )
    select recheck_count + greatest(count(*), v_seen_rows) into recheck_count from rechecks as u where not u.is_left;

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

    perform pgwake.admit_free_children(v_mine, admit_children.at, v_now, admit_children.audience);
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

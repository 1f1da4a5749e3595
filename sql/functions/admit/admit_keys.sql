-- Admits jobs that wait for a concurrency key that has room: makes up to count due jobs
-- of a queue's keys pending. Internal, for claim_rows.
--
-- A key's room is what key_room says: by its limit, and by its rate. Its jobs come in
-- by priority descending, run_at, id. Their run_at becomes the time of the recheck, if
-- it is not older, but at most a second ago, and later than claimed_up_to, behind which
-- the claim looks: a job's turn begins when its key has room, so keys take turns, in
-- proportion to their limits, however many jobs each has.
--
-- The rows of rechecks say which keys to check. No limit is exceeded, and nothing lost:
--   Room is taken only here, under the key's advisory lock, after a count with a snapshot
--   later than the lock: it sees what every holder before has admitted. Other ways to
--   pending are from running, which held the room already, or by admit_next_jobs, which
--   hands it on.
--   A recheck is deleted only by who judged its key with a snapshot that saw it. Who
--   adds a job, ends or puts off one that holds the room without handing it on, or raises
--   the limit, writes a recheck in the same transaction: so whatever changes after that
--   snapshot has a later recheck. Where room is left, a new recheck stands at the time
--   the next job is due; where the rate is used up, at that of its next token. Nothing
--   is due, or no room: a recheck needs no lock, for the same reason. Where another has
--   the lock, the recheck is left: he may have seen less.
--
-- So one claim holds no more locks of keys than jobs it asked for, and at most 100. Not
-- under repeatable read, where no snapshot is later: raises PW003.
--
-- from_at: rechecks before it are known to be dead. Returns the time of the next
-- recheck: not later than at if one is left that is due, null if there is none. Waits
-- for nobody. Rides rechecks_due_idx, jobs_key_idx, priority by priority, then
-- jobs_live_pkey.
create or replace function pgwake.admit_keys(
  queue text, count int, key_limit int, key_rate double precision, key_burst int, at timestamptz,
  from_at timestamptz, claimed_up_to timestamptz, audience pgwake.audience
)
returns timestamptz
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  v_jobs int := least(admit_keys.count, 100);   -- how many may still be admitted
  v_locks int := least(admit_keys.count, 100);  -- how many keys may still be locked
  v_window int := greatest(20, v_jobs / coalesce(admit_keys.key_limit, 1));
  v_is_last boolean;  -- all rechecks that are due are in the window
  v_is_done boolean;  -- all keys in it that have room were tried
  v_passed text[] := '{}';  -- keys that another has the lock of
  v_not_had text[];
  v_passed_at timestamptz;  -- the earliest of their rechecks
  v_left_at timestamptz;    -- the earliest recheck that was left
  v_back_at timestamptz;    -- the earliest that was given back
  v_now timestamptz;

  -- Keys whose lock is had, the time of their recheck, and that of the next token if they wait for one.
  v_keys text[];
  v_ats timestamptz[];
  v_token_ats timestamptz[];
  v_promoted int;
  v_promoted_rows int := 0;
  v_events text[];
  v_all_events text[];
begin
  perform from pgwake.rechecks as r
  where r.queue = admit_keys.queue and r.at >= admit_keys.from_at and r.at <= admit_keys.at
    and r.key is not null
  limit 1;
  if found and current_setting('transaction_isolation') <> 'read committed' then
    perform pgwake.raise_invalid(
      'concurrency keys need transactions that are read committed', 'Claim in a transaction of that level.');
  end if;
  for v_round in 1..case when found then 20 else 0 end loop  -- none: only rechecks of children are due
    with due as materialized (
      select r.ctid as tid, r.key, r.at
      from pgwake.rechecks as r
      where r.queue = admit_keys.queue and r.at >= admit_keys.from_at and r.at <= admit_keys.at
        and r.key <> all (v_passed)  -- none of children: their key is null
      order by r.at
      limit v_window
    ),
    judged as materialized (
      select k.key, k.at, w.next_at, r.room,
        case when r.room > 0 then w.next_at else greatest(w.next_at, r.token_at) end as recheck_at,
        r.room > 0 or r.token_at is not null as comes_again
      from (select d.key, min(d.at) as at from due as d group by d.key) as k
      left join pgwake.concurrency_limits as c on c.queue = admit_keys.queue and c.key = k.key
      cross join lateral (
        select coalesce(
          (select h.run_at from pgwake.key_heads(admit_keys.queue, k.key) as h
           where h.run_at <= admit_keys.at limit 1),
          (select min(h.run_at) from pgwake.key_heads(admit_keys.queue, k.key) as h)) as next_at
        offset 0
      ) as w
      left join lateral (
        select l.room, l.token_at
        from pgwake.key_room(
          admit_keys.queue, k.key, coalesce(c.max_running, admit_keys.key_limit, 1),
          coalesce(c.rate_limit, admit_keys.key_rate), admit_keys.key_burst, admit_keys.at) as l
        where w.next_at is not null
      ) as r on true
    ),
    tried as materialized (
      select o.key, o.at,
        pg_try_advisory_xact_lock(1885828974, hashtext(concat(admit_keys.queue, '/', o.key))) as is_had
      from (
        -- As many as can be filled; those of equal time in any order, since ends come in batches.
        select r.key, r.at
        from (
          select j.key, j.at, sum(j.jobs) over (order by j.at, j.dice) - j.jobs as jobs_before
          from (
            select j.key, j.at, random() as dice, case when j.room = 1 then 1 else (
                select count(*)
                from (
                  select from pgwake.jobs_live as w
                  where w.queue = admit_keys.queue and w.status = 'waiting' and w.concurrency_key = j.key
                    and w.has_parents_left is not true
                  limit least(j.room, v_jobs)
                ) as w
              ) end as jobs
            from judged as j where j.room > 0 and j.next_at <= admit_keys.at
          ) as j
        ) as r
        where r.jobs_before < v_jobs
        order by r.at
        limit v_locks
      ) as o
    ),
    gone as materialized (
      select r.ctid as tid, r.key
      from pgwake.rechecks as r
      where r.ctid = any (array(
        select d.tid
        from due as d
        join judged as j on j.key = d.key
        left join tried as t on t.key = d.key
        where t.is_had or j.next_at is null or j.room <= 0 or j.next_at > admit_keys.at))
      for update skip locked
    ),
    deleted as (
      delete from pgwake.rechecks as r where r.ctid = any (array(select g.tid from gone as g))
    ),
    next_rechecks as (
      insert into pgwake.rechecks (queue, at, key)
      select distinct admit_keys.queue, j.recheck_at, j.key
      from gone as g
      join judged as j on j.key = g.key
      where j.comes_again and j.recheck_at > admit_keys.at
    )
    select array_agg(t.key order by t.at) filter (where t.is_had),
      array_agg(t.at order by t.at) filter (where t.is_had),
      array_agg(t.key) filter (where not t.is_had),
      (select count(*) from due) < v_window,
      count(*) = (select count(*) from judged as j where j.room > 0 and j.next_at <= admit_keys.at),
      least(v_passed_at, min(t.at) filter (where not t.is_had)),
      (
        select least(min(d.at) filter (where g.tid is null), case when count(*) = v_window then max(d.at) end)
        from due as d
        left join gone as g on g.tid = d.tid
      )
    into v_keys, v_ats, v_not_had, v_is_last, v_is_done, v_passed_at, v_left_at
    from tried as t;
    v_locks := v_locks - coalesce(cardinality(v_keys), 0);
    v_passed := v_passed || v_not_had;

    if v_keys is not null then
      v_now := greatest(admit_keys.at, clock_timestamp() + (pgwake.now() - now()));
      with roomy as materialized (
        select u.key, u.at, u.place, r.room, r.token_at
        from unnest(v_keys, v_ats) with ordinality as u(key, at, place)
        left join pgwake.concurrency_limits as c on c.queue = admit_keys.queue and c.key = u.key
        cross join lateral pgwake.key_room(
          admit_keys.queue, u.key, coalesce(c.max_running, admit_keys.key_limit, 1),
          coalesce(c.rate_limit, admit_keys.key_rate), admit_keys.key_burst, admit_keys.at) as r
      ),
      next_jobs as materialized (
        select w.id, r.key, r.at
        from (select r.key, r.at, r.room from roomy as r where r.room > 0 order by r.place) as r
        cross join lateral (
          select next.id
          from pgwake.key_heads(admit_keys.queue, r.key) as h
          cross join lateral (
            select j.id
            from pgwake.jobs_live as j
            where j.queue = admit_keys.queue and j.status = 'waiting' and j.concurrency_key = r.key
              and j.has_parents_left is not true
              and j.priority = h.priority and j.run_at <= admit_keys.at
            order by j.run_at, j.id
            limit r.room
            for update skip locked
          ) as next
          limit r.room
        ) as w
        limit v_jobs
      ),
      promoted as (
        update pgwake.jobs_live as j
        set status = 'pending',
          run_at = least(v_now, greatest(
            n.at, j.run_at, v_now - interval '1 second',
            admit_keys.claimed_up_to + interval '1 microsecond'))
        from next_jobs as n
        where j.id = any (array(select n.id from next_jobs as n)) and n.id = j.id
        returning j.id, j.queue, j.kind
      ),
      counted as (select n.key, count(*)::int as jobs from next_jobs as n group by n.key)
      select (select count(*) from promoted),
        (select array_agg(pgwake.status_event(p.id, p.queue, p.kind, 'waiting', 'pending'))
           filter (where pgwake.is_announced(p.queue, admit_keys.audience)) from promoted as p),
        array_agg(r.key), array_agg(case when c.jobs > 0 then admit_keys.at else r.at end),
        array_agg(case when r.room <= coalesce(c.jobs, 0) then r.token_at end)
      into v_promoted, v_events, v_keys, v_ats, v_token_ats
      from roomy as r
      left join counted as c on c.key = r.key
      where r.room > coalesce(c.jobs, 0) or r.token_at is not null;
      v_jobs := v_jobs - v_promoted;
      v_promoted_rows := v_promoted_rows + v_promoted;
      v_all_events := v_all_events || v_events;
    end if;

    -- For keys that have room left, or wait for a token, a recheck of what waits. What is due has been skipped, since somebody has it
    -- locked; or this claim has enough: a key that had its turn is last in line now, the others keep their places.
    if v_keys is not null then
      with next_rechecks as (
        insert into pgwake.rechecks (queue, at, key)
        select admit_keys.queue,
          case
            when w.run_at > admit_keys.at or u.token_at is not null then greatest(w.run_at, u.token_at)
            when v_jobs = 0 then u.at
            else admit_keys.at + interval '50 milliseconds'
          end, u.key
        from unnest(v_keys, v_ats, v_token_ats) as u(key, at, token_at)
        cross join lateral (
          select min(h.run_at) as run_at from pgwake.key_heads(admit_keys.queue, u.key) as h
        ) as w
        where w.run_at is not null
        returning at
      )
      select least(v_back_at, min(r.at)) into v_back_at from next_rechecks as r where r.at <= admit_keys.at;
    end if;

    exit when (v_is_last and v_is_done) or v_jobs = 0 or v_locks = 0;
    if v_is_done then
      v_window := least(2 * v_window, 10000);
    end if;
  end loop;

  if v_promoted_rows > 0 then
    insert into pgwake.counts (queue, at, waiting_rows)
    values (admit_keys.queue, admit_keys.at, -v_promoted_rows);
    perform pgwake.announce(v_all_events);
  end if;
  return coalesce(
    least(v_passed_at, v_left_at, v_back_at),
    (select r.at from pgwake.rechecks as r
     where r.queue = admit_keys.queue and r.at > admit_keys.at
     order by r.at limit 1));
end
$$;

comment on function pgwake.admit_keys is
  'Internal: admits jobs that wait for a concurrency key that has room.';
revoke all on function pgwake.admit_keys from public;

-- Which of the jobs that a claim has locked may start, by the limits of their kinds, and
-- takes the tokens of their rates. Internal, for claim_rows, where some kind has a limit.
--
-- Takes the advisory lock of each limited kind, to the end of the transaction, and counts
-- with a later snapshot, as limit_claim does for a queue: so claims of all queues together
-- never exceed a limit. A lock that is not had leaves no room.
--
-- job_ids: in claim order; comes back without those that may not start. kinds: the limited
-- kinds among them; null: none is. cut: those of which a job may not start; null: none.
-- room: the least room of kinds. at: the server's clock after all that, ahead added to
-- it: what is claimed starts then. Raises PW003 unless the transaction is read committed.
-- Rides kinds_limits_idx and jobs_live_pkey.
create or replace function pgwake.limit_kinds(
  inout job_ids bigint[], ahead interval, out kinds text[], out cut text[], out room int, out at timestamptz
)
returns record
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  v_rooms jsonb;
begin
  select array_agg(k.name order by k.name) into kinds
  from pgwake.kinds as k
  where (k.max_running is not null or k.rate_limit is not null)
    and k.name = any (array(select j.kind from pgwake.jobs_live as j where j.id = any (limit_kinds.job_ids)));
  if kinds is null then
    return;
  end if;
  if current_setting('transaction_isolation') <> 'read committed' then
    perform pgwake.raise_invalid(
      'a kind with limits needs transactions that are read committed', 'Claim in a transaction of that level.');
  end if;

  select jsonb_object_agg(u.kind, case when pg_try_advisory_xact_lock(1885828977, hashtext(u.kind)) then 1 else 0 end)
  into v_rooms
  from unnest(limit_kinds.kinds) as u(kind);
  update pgwake.kind_buckets as b
  set filled_at = clock_timestamp() + limit_kinds.ahead
  where b.kind = any (limit_kinds.kinds) and v_rooms -> b.kind = '1'
    and b.filled_at > clock_timestamp() + limit_kinds.ahead;
  select jsonb_object_agg(r.kind, array[r.room * (v_rooms ->> r.kind)::int, r.tokens]) into v_rooms
  from pgwake.kind_rooms(limit_kinds.kinds, clock_timestamp() + limit_kinds.ahead) as r;
  limit_kinds.at := clock_timestamp() + limit_kinds.ahead;

  with jobs as (
    select u.id, u.place, (v_rooms -> j.kind ->> 0)::int as room, j.kind,
      row_number() over (partition by j.kind order by u.place) as nth
    from unnest(limit_kinds.job_ids) with ordinality as u(id, place)
    join pgwake.jobs_live as j on j.id = u.id
  ),
  used as (
    insert into pgwake.kind_buckets (kind, tokens, filled_at)
    select j.kind, (v_rooms -> j.kind ->> 1)::float8 - count(*), limit_kinds.at
    from jobs as j
    where j.nth <= j.room and v_rooms -> j.kind ->> 1 is not null
    group by j.kind
    on conflict (kind) do update set tokens = excluded.tokens, filled_at = excluded.filled_at
  )
  select coalesce(array_agg(j.id order by j.place) filter (where (j.nth > j.room) is not true), '{}'),
    array_agg(distinct j.kind) filter (where j.nth > j.room), min(j.room)
  into limit_kinds.job_ids, cut, room
  from jobs as j;
end
$$;

comment on function pgwake.limit_kinds is
  'Internal: which of the jobs that a claim has locked may start, by the limits of their kinds.';
revoke all on function pgwake.limit_kinds from public;

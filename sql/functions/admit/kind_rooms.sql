-- How many jobs of each of these kinds may start now, of those that have a limit: of
-- max_running less what runs, in all queues, and of the tokens of its rate, the least.
-- Internal. next_at: when there is a token more, if that is what is missing.
--
-- A clock that was put back has room for a claim to come to limit_kinds, which sees to
-- it. Rides kinds_pkey, kind_buckets_pkey and jobs_lease_idx: with max_running it reads
-- what runs in all queues, up to that many of the kind.
create or replace function pgwake.kind_rooms(kinds text[], at timestamptz)
returns table (kind text, room int, tokens double precision, next_at timestamptz)
language plpgsql stable
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
begin
  return query
  select r.name, least(r.running_room, floor(r.tokens + 1e-9))::int, r.tokens,
    case when r.tokens < 1 - 1e-9 and (r.running_room = 0) is not true then
      kind_rooms.at + interval '1 microsecond' + interval '1 second' * ((1 - r.tokens) / r.rate_limit)
    end
  from (
    select k.name, k.rate_limit,
      case when k.max_running is not null then
        k.max_running - (
          select count(*)
          from (
            select from pgwake.jobs_live as j where j.status = 'running' and j.kind = k.name limit k.max_running
          ) as held)
      end as running_room,
      case
        when k.rate_limit is null then null
        when b.filled_at > kind_rooms.at + interval '1 second' then greatest(1, b.tokens)
        else least(
          coalesce(k.rate_burst, greatest(1, ceil(k.rate_limit))),
          b.tokens + k.rate_limit * greatest(0, extract(epoch from kind_rooms.at - b.filled_at)::float8))
      end as tokens
    from pgwake.kinds as k
    left join pgwake.kind_buckets as b on b.kind = k.name
    where k.name = any (kind_rooms.kinds) and (k.max_running is not null or k.rate_limit is not null)
    offset 0
  ) as r;
end
$$;

comment on function pgwake.kind_rooms is
  'Internal: how many jobs of each of these kinds may start now.';
revoke all on function pgwake.kind_rooms from public;

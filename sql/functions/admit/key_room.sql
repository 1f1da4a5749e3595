-- How many more jobs a concurrency key can admit: max_running less its pending and running
-- jobs; with a rate (starts a second), no more than the tokens of its bucket less its
-- pending jobs, which have yet to use theirs: see use_key_tokens. Internal.
--
-- token_at: if it is the rate that leaves so little room, when there is a token more.
--
-- Plain SQL without a set clause, so that the planner puts it inline; offset 0 has each
-- count made once, and "between" keeps the server from jobs_claim_idx, which has pending
-- jobs of all keys. Rides jobs_key_idx and key_buckets_pkey.
create or replace function pgwake.key_room(
  queue text, key text, max_running int, rate double precision, burst int, at timestamptz
)
returns table (room int, token_at timestamptz)
language sql stable
as $$
  select least(c.room, case when key_room.rate is not null then greatest(floor(c.tokens + 1e-9), 0) end)::int,
    case when greatest(floor(c.tokens + 1e-9), 0) < c.room and key_room.rate is not null then
      key_room.at + interval '1 microsecond'
      + interval '1 second' * ((greatest(floor(c.tokens + 1e-9), 0) + 1 - c.tokens) / key_room.rate)
    end
  from (
    select
      key_room.max_running - (
        select count(*)
        from (
          select from pgwake.jobs_live as j
          where j.queue = key_room.queue and j.status between 'pending' and 'running'
            and j.concurrency_key = key_room.key and j.has_parents_left is not true
          limit key_room.max_running
        ) as held
      ) as room,
      case when key_room.rate is not null then
        coalesce(key_room.burst, greatest(1, ceil(key_room.rate)))
        - key_room.rate * coalesce((
            select greatest(extract(epoch from b.full_at - key_room.at)::float8, 0)
            from pgwake.key_buckets as b where b.queue = key_room.queue and b.key = key_room.key), 0)
        - (
          select count(*) from pgwake.jobs_live as j
          where j.queue = key_room.queue and j.status between 'pending' and 'pending' and j.concurrency_key = key_room.key
            and j.has_parents_left is not true)
      end as tokens
    offset 0
  ) as c
$$;

comment on function pgwake.key_room is
  'Internal: how many more jobs a concurrency key can admit.';
revoke all on function pgwake.key_room from public;

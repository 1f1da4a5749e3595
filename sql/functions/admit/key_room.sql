-- How many more jobs a concurrency key can admit: its limit (concurrency_limits, else
-- key_limit, else 1) less its pending and running jobs; with a rate, no more than the
-- tokens of its bucket less its pending jobs, which have yet to use theirs: see
-- use_key_tokens. Internal.
--
-- rate: starts a second (concurrency_limits, else key_rate); null: no limit. token_at: if
-- it is the rate that leaves so little room, when there is a token more.
--
-- Plain SQL without a set clause, so that the planner puts it inline; offset 0 has each
-- count made once. Rides concurrency_limits_pkey, jobs_key_idx and key_buckets_pkey.
set local check_function_bodies = off;  -- an upgrade adds rate_limit after the functions
create or replace function pgwake.key_room(
  queue text, key text, key_limit int, key_rate double precision, key_burst int, at timestamptz
)
returns table (room int, rate double precision, token_at timestamptz)
language sql stable
as $$
  select least(r.room, r.tokens_left)::int, r.rate,
    case when r.tokens_left < r.room then
      key_room.at + interval '1 second' * ((r.tokens_left + 1 - r.tokens) / r.rate) + interval '1 microsecond'
    end
  from (
    select c.room, c.rate, c.tokens,
      case when c.rate is not null then greatest(floor(c.tokens + 1e-9), 0) end as tokens_left
    from (
      select l.rate,
        l.max_running - (
          select count(*)
          from (
            select from pgwake.jobs_live as j
            where j.queue = key_room.queue and j.status between 'pending' and 'running'
              and j.concurrency_key = key_room.key and j.has_parents_left is not true
            limit l.max_running
          ) as held
        ) as room,
        case when l.rate is not null then
          coalesce(key_room.key_burst, greatest(1, ceil(l.rate)))
          - l.rate * coalesce((
              select greatest(extract(epoch from b.full_at - key_room.at)::float8, 0)
              from pgwake.key_buckets as b where b.queue = key_room.queue and b.key = key_room.key), 0)
          - (
            select count(*) from pgwake.jobs_live as j
            where j.queue = key_room.queue and j.status = 'pending' and j.concurrency_key = key_room.key
              and j.has_parents_left is not true)
        end as tokens
      from (
        select coalesce(o.max_running, key_room.key_limit, 1) as max_running,
          coalesce(o.rate_limit, key_room.key_rate) as rate
        from (values (1)) as v
        left join pgwake.concurrency_limits as o on o.queue = key_room.queue and o.key = key_room.key
        offset 0
      ) as l
      offset 0
    ) as c
    offset 0
  ) as r
$$;
set local check_function_bodies = on;

comment on function pgwake.key_room is
  'Internal: how many more jobs a concurrency key can admit.';
revoke all on function pgwake.key_room from public;

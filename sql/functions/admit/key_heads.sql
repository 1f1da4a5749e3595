-- The first job of each priority that waits for a concurrency key, highest priority
-- first. Internal. Plain SQL without a set clause, so that the planner puts it inline,
-- and reads no further than is asked for. Rides jobs_key_idx.
create or replace function pgwake.key_heads(queue text, key text)
returns table (priority smallint, run_at timestamptz)
language sql stable
as $$
  with recursive heads as (
    (
      select j.priority, j.run_at
      from pgwake.jobs_live as j
      where j.queue = key_heads.queue and j.status = 'waiting' and j.concurrency_key = key_heads.key
        and j.has_parents_left is not true
      order by j.priority desc, j.run_at
      limit 1
    )
    union all
    select lower.priority, lower.run_at
    from heads as h
    cross join lateral (
      select j.priority, j.run_at
      from pgwake.jobs_live as j
      where j.queue = key_heads.queue and j.status = 'waiting' and j.concurrency_key = key_heads.key
        and j.has_parents_left is not true
        and j.priority < h.priority
      order by j.priority desc, j.run_at
      limit 1
    ) as lower
  )
  select h.priority::smallint, h.run_at::timestamptz from heads as h
$$;

comment on function pgwake.key_heads is
  'Internal: the first job of each priority that waits for a concurrency key.';
revoke all on function pgwake.key_heads from public;

-- When the next suspect of these queues (a pending job with two crashes or more) can be
-- claimed; null if there is none. A supervisor starts a quarantine for it, so a queue
-- that is paused, or whose rate is used up, is told from the end of that on, and one
-- whose max_running is reached not at all: the end of one of its jobs makes room. Nor is
-- one whose kind has no room. Rides jobs_claim_idx, jobs_lease_idx and kinds_limits_idx.
create or replace function pgwake.next_suspect_run_at(queues text[])
returns timestamptz
language plpgsql stable
security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
begin
  return (
    select nullif(min(greatest(
      s.run_at, q.paused_until, b.filled_at + interval '1 second' * ((1 - b.tokens) / q.rate_limit)
    )), 'infinity')
    from (
      select j.queue, min(j.run_at) as run_at
      from pgwake.jobs_live as j
      where j.queue = any (next_suspect_run_at.queues) and j.status = 'pending'
        and least(j.crash_count, 2) * 201 - j.priority between 302 and 502
        and j.kind <> all (array(
          select r.kind
          from pgwake.kind_rooms(
            array(select k.name from pgwake.kinds as k where k.max_running is not null or k.rate_limit is not null),
            pgwake.now()) as r
          where r.room = 0))
      group by j.queue
    ) as s
    left join pgwake.queues as q on q.name = s.queue
    left join pgwake.rate_buckets as b on b.queue = q.name
    where q.max_running is null
      or q.max_running > (
        select count(*)
        from (
          select from pgwake.jobs_live as j where j.status = 'running' and j.queue = s.queue limit q.max_running
        ) as r)
  );
end
$$;

comment on function pgwake.next_suspect_run_at is
  'When the next job with two crashes or more is due; null if there is none.';
revoke all on function pgwake.next_suspect_run_at from public;

-- The priority bands of a queue that have jobs, below an end: each is found when the one
-- before has not been enough. Internal. Plain SQL without a set clause, so that the planner
-- puts it inline. Rides jobs_claim_idx.
create or replace function pgwake.live_bands(queue text, below int)
returns setof int
language sql stable
as $$
  with recursive bands as (
    select -102 as band
    union all
    select (
      select least(j.crash_count, 2) operator(pg_catalog.*) 201 operator(pg_catalog.-) j.priority
      from pgwake.jobs_live as j
      where j.queue operator(pg_catalog.=) live_bands.queue and j.status operator(pg_catalog.=) 'pending'
        and least(j.crash_count, 2) operator(pg_catalog.*) 201 operator(pg_catalog.-) j.priority
          operator(pg_catalog.>) b.band
        and least(j.crash_count, 2) operator(pg_catalog.*) 201 operator(pg_catalog.-) j.priority
          operator(pg_catalog.<) live_bands.below
      order by least(j.crash_count, 2) operator(pg_catalog.*) 201 operator(pg_catalog.-) j.priority
      limit 1)
    from bands as b
    where b.band is not null
  )
  select b.band from bands as b where b.band operator(pg_catalog.>) -102
$$;

comment on function pgwake.live_bands is
  'Internal: the priority bands of a queue that have jobs.';
revoke all on function pgwake.live_bands from public;

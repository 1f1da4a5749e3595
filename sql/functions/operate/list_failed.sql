-- The dead letters, grouped by error: queue, kind and fingerprint of the last
-- error (see error_fingerprint); those that failed last come first.
--
-- A row a group, at most max_groups (null: all): reason and message are the last ones of
-- its latest job, last_job_id. Arguments left out (null) select all. Raises PW003.
-- Locks nothing.
--
-- Counts are exact: it reads the whole of jobs_failed_fingerprint_idx, which has all that
-- it needs of the jobs (or the table itself, where much of it has not been vacuumed), and
-- then one job a group: 0.1 s for 100,000 dead letters; 0.4 s for a million, 1 s where
-- they have just been written.
create or replace function pgwake.list_failed(
  queue text default null,
  kind text default null,
  fingerprint text default null,
  max_groups int default 100
)
returns table (
  fingerprint text,
  queue text,
  kind text,
  reason text,
  message text,
  job_count bigint,
  first_failed_at timestamptz,
  last_failed_at timestamptz,
  last_job_id bigint
)
language sql stable
security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
  with groups as materialized (
    select j.fingerprint, j.queue, j.kind, count(*) as job_count,
      min(j.finished_at) as first_failed_at, max(j.finished_at) as last_failed_at
    from pgwake.jobs_failed as j
    where (list_failed.queue is null or j.queue = list_failed.queue)
      and (list_failed.kind is null or j.kind = list_failed.kind)
      and (list_failed.fingerprint is null or j.fingerprint = list_failed.fingerprint)
    group by j.fingerprint, j.queue, j.kind
    order by max(j.finished_at) desc, count(*) desc
    limit case
      when list_failed.max_groups < 0 then (
        select 0 from pgwake.raise_invalid(
          format('max_groups is %s', list_failed.max_groups), 'Use 0 or more, or null for all groups.'))
      else list_failed.max_groups
    end
  )
  select g.fingerprint, g.queue, g.kind, l.errors -> -1 ->> 'reason', l.errors -> -1 ->> 'message', g.job_count,
    g.first_failed_at, g.last_failed_at, l.id
  from groups as g
  cross join lateral (
    (
      select j.id, j.errors
      from pgwake.jobs_failed as j
      where j.fingerprint = g.fingerprint and j.finished_at = g.last_failed_at and j.queue = g.queue
        and j.kind = g.kind
      order by j.id desc
      limit 1
    )
    union all
    (
      -- put there by hand, not by end_job
      select j.id, j.errors
      from pgwake.jobs_failed as j
      where g.fingerprint is null and j.fingerprint is null and j.finished_at = g.last_failed_at
        and j.queue = g.queue and j.kind = g.kind
      order by j.id desc
      limit 1
    )
  ) as l
  order by g.last_failed_at desc, l.id desc
$$;

comment on function pgwake.list_failed is
  'The dead letters, grouped by queue, kind and fingerprint of their last error.';
revoke all on function pgwake.list_failed from public;

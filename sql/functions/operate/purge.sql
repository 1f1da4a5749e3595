-- Deletes ended jobs for good: failed (the dead letters), completed or cancelled ones, by
-- queue, kind, fingerprint (of failed ones) and before: those that ended before then.
-- Arguments left out (null) select all, but at least one must be given.
--
-- Returns how many, at most max_jobs a call, about the oldest first; repeat it for more.
-- dry_run counts and deletes nothing. One that somebody has locked is left, and one that
-- a trigger or foreign key of yours refuses, with a warning.
--
-- Raises PW003 for a status of live jobs, no filter, or max_jobs not from 1 to
-- 1,000,000. Takes the rows' locks, skips locked ones. Rides
-- jobs_failed_fingerprint_idx or jobs_failed_finished_at_idx; reads the leaves of the
-- ring from end to end.
create or replace function pgwake.purge(
  status text default 'failed',
  queue text default null,
  kind text default null,
  fingerprint text default null,
  before timestamptz default null,
  max_jobs int default 10000,
  dry_run boolean default false
)
returns bigint
language plpgsql volatile
security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_custom_plan
set jit = off
as $$
#variable_conflict use_column
declare
  v_now timestamptz := pgwake.now();
  v_leaf text;
  v_tids tid[];
  v_slot int;
  v_deleted bigint;
  v_count bigint := 0;
begin
  if purge.status in ('waiting', 'pending', 'running') then
    perform pgwake.raise_invalid(
      format('jobs that are %s are live', purge.status), 'Cancel them first: cancel_jobs, then purge(''cancelled'').');
  end if;
  if purge.status is null or purge.status not in ('failed', 'completed', 'cancelled') then
    perform pgwake.raise_invalid(format('status is %L', purge.status), 'Use failed, completed or cancelled.');
  end if;
  if purge.fingerprint is not null and purge.status <> 'failed' then
    perform pgwake.raise_invalid(
      format('jobs that are %s have no fingerprint', purge.status), 'Leave it out, or use status => ''failed''.');
  end if;
  if purge.queue is null and purge.kind is null and purge.fingerprint is null and purge.before is null then
    perform pgwake.raise_invalid(
      format('no filter: all jobs that are %s would be deleted', purge.status),
      'Give queue, kind, fingerprint or before; before => now() deletes all.');
  end if;
  if purge.max_jobs is null or purge.max_jobs not between 1 and 1000000 then
    perform pgwake.raise_invalid(
      format('max_jobs is %s', coalesce(purge.max_jobs::text, 'null')), 'Use 1 to 1000000, and repeat it for more.');
  end if;
  if purge.dry_run is null then
    perform pgwake.raise_invalid('dry_run is null', 'Use true to count, or false to delete.');
  end if;

  if purge.status = 'failed' then
    if purge.dry_run then
      select count(*) into v_count
      from (
        select
        from pgwake.jobs_failed as j
        where (purge.queue is null or j.queue = purge.queue)
          and (purge.kind is null or j.kind = purge.kind)
          and (purge.fingerprint is null or j.fingerprint = purge.fingerprint)
          and (purge.before is null or j.finished_at < purge.before)
        limit purge.max_jobs
      ) as j;
      return v_count;
    end if;
    return pgwake.delete_ended_jobs('pgwake.jobs_failed', array(
      select j.ctid
      from pgwake.jobs_failed as j
      where (purge.queue is null or j.queue = purge.queue)
        and (purge.kind is null or j.kind = purge.kind)
        and (purge.fingerprint is null or j.fingerprint = purge.fingerprint)
        and (purge.before is null or j.finished_at < purge.before)
      order by j.finished_at, j.id
      limit purge.max_jobs
      for update skip locked), frees => true);
  end if;

  -- Leaf by leaf, the one that is next in use first: it has the oldest.
  for v_slot in
    select (pgwake.finished_slot(v_now) + s.step) % 32 from generate_series(1, 32) as s(step)
  loop
    exit when v_count >= purge.max_jobs;
    v_leaf := format('pgwake.jobs_finished_%s', v_slot);
    if purge.dry_run then
      execute format(
        'select count(*) from (select from %s as j where j.status = $1 and ($2 is null or j.queue = $2) '
        'and ($3 is null or j.kind = $3) and ($4 is null or j.finished_at < $4) limit $5) as j', v_leaf)
      into v_deleted
      using purge.status, purge.queue, purge.kind, purge.before, purge.max_jobs - v_count;
    else
      execute format(
        'select array(select j.ctid from %s as j where j.status = $1 and ($2 is null or j.queue = $2) '
        'and ($3 is null or j.kind = $3) and ($4 is null or j.finished_at < $4) limit $5 for update skip locked)', v_leaf)
      into v_tids
      using purge.status, purge.queue, purge.kind, purge.before, purge.max_jobs - v_count;
      v_deleted := pgwake.delete_ended_jobs(v_leaf, v_tids, frees => true);
    end if;
    v_count := v_count + v_deleted;
  end loop;
  return v_count;
end
$$;

comment on function pgwake.purge is
  'Deletes ended jobs for good, by status, queue, kind, fingerprint and age; returns how many.';
revoke all on function pgwake.purge from public;

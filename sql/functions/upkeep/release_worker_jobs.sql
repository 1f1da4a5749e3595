-- Gives back at once what a dead worker had, as crashes; see crash_jobs. Returns how
-- many jobs, by queue and kind, and how many of them are failed or cancelled by that.
--
-- One that can't be moved (a user's trigger raises) is left to the sweep.
--
-- For whoever knows that the worker is dead, as its supervisor does. A claim of the
-- worker's may still be in flight, so repeat until no session of it is left. Locks in
-- id order, skips locked rows; rides jobs_lease_idx, queue by queue. Raises PW003.
create or replace function pgwake.release_worker_jobs(worker text)
returns table (queue text, kind text, job_count bigint, failed_count bigint, cancelled_count bigint)
language plpgsql volatile
security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  v_queue text := '';
  v_found bigint[] := '{}';
  v_ids bigint[];
  v_moved bigint[];
  v_queues text[];
  v_kinds text[];
begin
  if coalesce(release_worker_jobs.worker, '') = '' then
    perform pgwake.raise_invalid(
      'no worker given', 'Name it as it stands in claimed_by of its running jobs.');
  end if;
  perform pgwake.leave_upkeep(release_worker_jobs.worker);
  loop
    select j.queue into v_queue
    from pgwake.jobs_live as j
    where j.status = 'running' and j.queue > v_queue
    order by j.queue
    limit 1;
    exit when not found;
    v_found := v_found || array(
      select j.id
      from pgwake.jobs_live as j
      where j.status = 'running' and j.queue = v_queue and j.claimed_by = release_worker_jobs.worker
    );
  end loop;
  select array_agg(held.id), array_agg(held.queue), array_agg(held.kind)
  into v_ids, v_queues, v_kinds
  from (
    select j.id, j.queue, j.kind
    from pgwake.jobs_live as j
    where j.id = any (v_found) and j.status = 'running' and j.claimed_by = release_worker_jobs.worker
    order by j.id
    for update skip locked
  ) as held;
  if v_ids is null then
    return;
  end if;
  v_moved := pgwake.try_crash_jobs(v_ids, format('the worker died; worker %s', release_worker_jobs.worker));
  return query
  select c.*
  from (
    select array_agg(u.id) as ids, array_agg(u.queue) as queues, array_agg(u.kind) as kinds
    from unnest(v_ids, v_queues, v_kinds) as u(id, queue, kind)
    where u.id = any (v_moved)
  ) as m
  cross join pgwake.count_crashed(m.ids, m.queues, m.kinds) as c;
end
$$;

comment on function pgwake.release_worker_jobs is
  'Gives back what a dead worker had, as crashes; returns how many jobs, by queue and '
  'kind, and what has become of them.';
revoke all on function pgwake.release_worker_jobs from public;

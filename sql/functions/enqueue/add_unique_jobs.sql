-- Adds the jobs of enqueue_many, some of which have a unique key. Internal. Returns their
-- ids in the order of the jobs.
--
-- All at once, but those whose key is taken: these are answered one by one, by their
-- on_conflict. Within a unique_until a job that has begun or ended is not replaced: its id
-- is returned. Raises PW005 as enqueue and take_unique_periods.
create or replace function pgwake.add_unique_jobs(jobs jsonb)
returns bigint[]
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
  v_ids bigint[];
  v_left jsonb;
  v_job record;
  v_holder record;
begin
  with given as materialized (
    select nextval('pgwake.jobs_id_seq') as id, g.*,
      case when g.unique_until is not null then exists (
        select from pgwake.unique_periods as p
        where p.kind = g.kind and p.unique_key = g.unique_key and p.until > pgwake.now()) end as is_taken
    from pgwake.given_jobs(add_unique_jobs.jobs) as g
  ), added as (
    insert into pgwake.jobs
      (id, kind, payload, queue, priority, run_at, max_attempts, unique_key, metadata, concurrency_key, depends_on,
       on_parent_failure, webhook, expires_at, unique_until)
    select g.id, g.kind, g.payload, g.queue, g.priority, g.due_at, g.max_attempts, g.unique_key, g.metadata,
      g.concurrency_key, g.depends_on, g.on_parent_failure, g.webhook, g.expires_at, g.unique_until
    from given as g
    where g.is_taken is not true
    order by case when g.unique_key is not null then g.kind end, g.unique_key, g.place
    on conflict do nothing
    returning id
  )
  select array_agg(g.id order by g.place),
    jsonb_agg(to_jsonb(g) order by g.kind, g.unique_key, g.place) filter (where a.id is null)
  into v_ids, v_left
  from given as g
  left join added as a on a.id = g.id;
  for v_job in
    select j.*
    from jsonb_to_recordset(v_left) as j(
      place int, kind text, payload jsonb, queue text, priority int, run_at timestamptz, delay interval,
      max_attempts int, unique_key text, on_conflict text, metadata jsonb, concurrency_key text, depends_on bigint[],
      on_parent_failure text, webhook text, expires_at timestamptz, unique_until timestamptz)
  loop
    if v_job.unique_until is not null then
      select p.until, p.job_id, j.id as idle_id into v_holder
      from pgwake.unique_periods as p
      left join pgwake.jobs_live as j
        on j.id = p.job_id and j.unique_key = p.unique_key and j.status in ('waiting', 'pending')
      where p.kind = v_job.kind and p.unique_key = v_job.unique_key and p.until > pgwake.now();
      if found and v_job.on_conflict = 'raise' then
        perform pgwake.raise_unique_period(v_job.kind, v_job.unique_key, v_holder.until, v_holder.job_id);
      elsif found and (v_job.on_conflict = 'return' or v_holder.idle_id is null) then
        v_ids[v_job.place] := v_holder.job_id;
        continue;
      end if;
    end if;
    v_ids[v_job.place] := pgwake.enqueue(
      v_job.kind, v_job.payload, v_job.queue, v_job.priority, v_job.run_at, v_job.delay, v_job.max_attempts,
      v_job.unique_key, v_job.on_conflict, v_job.metadata, v_job.concurrency_key, v_job.depends_on,
      v_job.on_parent_failure, v_job.webhook);
    if num_nonnulls(v_job.expires_at, v_job.unique_until) > 0 then  -- which enqueue does not take
      update pgwake.jobs_live as j
      set expires_at = v_job.expires_at, unique_until = coalesce(v_job.unique_until, j.unique_until)
      where j.id = v_ids[v_job.place]
        and (v_job.on_conflict = 'replace' or j.id = currval('pgwake.jobs_id_seq'));  -- or it is not its own
      if found and v_job.unique_until is not null then
        perform pgwake.take_unique_periods(
          array[v_ids[v_job.place]], array[v_job.kind], array[v_job.unique_key], array[v_job.unique_until]);
      end if;
    end if;
  end loop;
  return v_ids;
end
$$;

comment on function pgwake.add_unique_jobs is
  'Internal: adds the jobs of enqueue_many, some of which have a unique key.';
revoke all on function pgwake.add_unique_jobs from public;

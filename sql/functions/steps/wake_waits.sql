-- Has the jobs looked at that wait for events, or for the ends of other jobs, and wakes
-- their queues. Internal. Returns how many. Waits for nobody. Rides waits_event_idx,
-- waits_other_idx and jobs_live_pkey.
create or replace function pgwake.wake_waits(events text[], other_ids bigint[])
returns int
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
  v_queues text[];
  v_count int;
begin
  with waked as (
    insert into pgwake.rechecks (queue, at, child_id, parent_id, has_failed)
    select w.queue, pgwake.now(), w.job_id, w.job_id, false
    from (
      select w.job_id, (select j.queue from pgwake.jobs_live as j where j.id = w.job_id) as queue
      from (
        select e.job_id from pgwake.waits as e where e.event = any (wake_waits.events)
        union all
        select p.job_id from pgwake.waits as p where p.other_id = any (wake_waits.other_ids)
      ) as w
    ) as w
    where w.queue is not null
    returning queue
  )
  select array_agg(distinct w.queue), count(*) into v_queues, v_count from waked as w;
  if v_count > 0 then
    lock table pgwake.jobs_live in row exclusive mode;  -- seen by open_writers()
    perform pgwake.wake(q.name) from unnest(v_queues) as q(name);
  end if;
  return v_count;
end
$$;

comment on function pgwake.wake_waits is
  'Internal: has the jobs looked at that wait for events or other jobs.';
revoke all on function pgwake.wake_waits from public;

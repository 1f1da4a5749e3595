-- For diagnose: jobs that wait for others or for events, and that nobody looks at.
--
-- children_wait  error   a recheck has been due for five minutes, or there is none though
--                        nothing that it waits for is still to come
-- waits_long     notice  waits for an event, or for another job, without a time-out for
--                        more than a day
-- events_unheard notice  no job has recorded them, and nine tenths of their time are over
--
-- Of the first 1,000 children by id, of their first 1,000 rechecks, of the first 1,000
-- waits, and of the 1,000 events that expire next.
create or replace function pgwake.diagnose_children()
returns setof pgwake.finding
language plpgsql stable
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
as $$
begin
  return query
  select 'children_wait', 'error', f.queue,
    format('%s jobs of the queue %s wait for parents, and %s: job %s is one', count(*), pgwake.say_name(f.queue),
      case when f.is_lost then 'nothing says when to look at them again'
        else 'nobody has looked at them for five minutes' end, min(f.id)),
    case when f.is_lost then 'select pgwake.maintain(''children'');  -- as workers do each minute'
      else 'select pgwake.maintain(''children'');  -- as workers do; it warns of a job that a hook refuses' end,
    count(*)::double precision
  from (
    select j.queue, j.id, true as is_lost
    from (select j.queue, j.id from pgwake.jobs_live as j where j.has_parents_left order by j.id limit 1000) as j
    where pgwake.is_lost_child(j.id)
    union all
    select r.queue, r.child_id, false
    from (
      select r.queue, r.child_id, r.at from pgwake.rechecks as r where r.child_id is not null
      order by r.child_id limit 1000
    ) as r
    where r.at < pgwake.now() - interval '5 minutes'
  ) as f
  group by f.queue, f.is_lost
  order by f.queue
  limit 10;

  return query
  select 'waits_long', 'notice', w.queue,
    format('%s jobs of the queue %s wait without a time-out since more than a day: job %s for %s', count(*),
      pgwake.say_name(w.queue), min(w.job_id),
      (array_agg(coalesce('event ' || pgwake.say_name(w.event), format('job %s', w.other_id)) order by w.job_id))[1]),
    format('select pgwake.explain_job(%s);  -- then emit the event, or cancel_job; await_event takes a timeout',
      min(w.job_id)),
    extract(epoch from pgwake.now() - min(w.since))::double precision
  from (
    select o.*, (select j.queue from pgwake.jobs_live as j where j.id = o.job_id) as queue
    from (select l.* from pgwake.waits as l order by l.job_id limit 1000) as o
    where o.deadline is null and o.since < pgwake.now() - interval '1 day'
  ) as w
  where w.queue is not null
  group by w.queue
  order by w.queue
  limit 10;

  return query
  select 'events_unheard', 'notice', min(e.name),
    format('%s events have nearly expired, and no job has asked for them: %s is one', count(*), pgwake.say_name(min(e.name))),
    'select * from pgwake.events where is_heard is null order by expires_at;  -- do jobs wait for other names? else keep them shorter',
    count(*)::double precision
  from (select l.* from pgwake.events as l order by l.expires_at limit 1000) as e
  where e.is_heard is null and not exists (select from pgwake.waits as w where w.event = e.name)
    and case when isfinite(e.expires_at) then pgwake.now() > e.expires_at - (e.expires_at - e.at) / 10 end
  having count(*) > 0;
end
$$;

comment on function pgwake.diagnose_children is
  'Internal: for diagnose, jobs that wait for others or for events, and that nobody looks at.';
revoke all on function pgwake.diagnose_children from public;

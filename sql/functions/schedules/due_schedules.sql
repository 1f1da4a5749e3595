-- The schedules that somebody has to look at now: one of their ticks is due within two
-- seconds, or their next tick is not known. Each worker looks once a second; what it
-- finds it hands to fire_schedule() or, if it can't, to note_schedule_problem().
--
-- version     of the row: whoever fires or changes it meanwhile makes this answer void
-- since       no tick is earlier, save that a clock put back by more than three hours
--             begins anew: the ticks of the time that comes again are fired again
-- now, until  by the database's clock: ticks up to until are to be fired. Those after
--             now make jobs that are due at their tick, so that these start in time.
--             With may_overlap => false until is now: only at the tick is it known
--             whether the last job is live
--
-- Ticks of every are since, since + every, ...; those of cron are the reader's to
-- compute. A schedule with a problem is left in peace for a minute.
--
-- In a copy of the database that nobody has adopted there are none: see adopt.
--
-- No lock says who fires: one held while ticks are computed would be held by a stopped
-- process too. Reads all schedules, and writes nothing.
create or replace function pgwake.due_schedules()
returns table (
  name text,
  version text,
  cron text,
  every interval,
  timezone text,
  misfire text,
  misfire_limit int,
  since timestamptz,
  now timestamptz,
  until timestamptz
)
language sql stable
security definer
set search_path = pg_catalog, pg_temp
as $$
  with clock as materialized (  -- read once, not for each row
    select pgwake.now() as now, pgwake.now() + interval '2 seconds' as until,
      pgwake.now() + interval '3 hours' as far
  )
  select s.name, s.xmin::text, s.cron, s.every, s.timezone, s.misfire, s.misfire_limit,
    case
      when s.next_at is not null and (s.last_at > c.far) is not true then s.next_at
      when s.cron is not null then greatest(b.base, s.starts_at)
      else b.anchor + make_interval(secs => extract(epoch from s.every)::float8 * greatest(
        ceil(extract(epoch from b.base - b.anchor) / extract(epoch from s.every)),
        case when s.starts_at is null then 1 else 0 end)::float8)
    end,
    c.now, case when s.may_overlap then c.until else c.now end
  from clock as c
  cross join pgwake.schedules as s
  cross join lateral (
    select case when s.last_at <= c.far then s.last_at end as last_at
  ) as l
  cross join lateral (
    select greatest(least(s.updated_at, c.now), l.last_at + interval '1 microsecond') as base,
      date_trunc('second', coalesce(s.starts_at, l.last_at, least(s.created_at, c.now))) as anchor
  ) as b
  where (select pgwake.is_adopted()) and not s.is_paused and (
      s.next_at is null or s.next_at <= case when s.may_overlap then c.until else c.now end or s.last_at > c.far)
    and (s.problem_at between c.now - interval '1 minute' and c.now) is not true
  order by s.next_at, s.name
$$;

comment on function pgwake.due_schedules is
  'The schedules with ticks that are due within two seconds, or whose next tick is not known.';
revoke all on function pgwake.due_schedules from public;

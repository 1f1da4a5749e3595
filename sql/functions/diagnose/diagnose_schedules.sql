-- For diagnose: schedules that nobody fires, or that can't be fired.
--
-- schedule_late     error    its tick is due for a minute
-- schedule_problem  warning  its tick could not be fired
create or replace function pgwake.diagnose_schedules()
returns setof pgwake.finding
language plpgsql stable
set search_path = pg_catalog, pg_temp
set jit = off
as $$
declare
  v_now timestamptz := pgwake.now();
begin
  return query
  select case when s.problem is null then 'schedule_late' else 'schedule_problem' end,
    case when s.problem is null then 'error' else 'warning' end, s.name,
    case when s.problem is null
      then format('a tick of the schedule %s has been due for %s', pgwake.say_name(s.name),
        date_trunc('second', v_now - d.due_at))
      else format('the schedule %s can''t be fired: %s', pgwake.say_name(s.name), pgwake.say_name(s.problem)) end,
    case when s.problem is null
      then 'select * from pgwake.list_workers() where is_live;  -- each of them fires what is due: is there one?'
      else format('select * from pgwake.list_schedules() where name = %L;  -- then mend it: pgwake.schedule()', s.name)
    end,
    extract(epoch from v_now - d.due_at)::double precision
  from pgwake.schedules as s
  cross join lateral (select coalesce(s.next_at, greatest(s.updated_at, s.starts_at)) as due_at) as d
  where not s.is_paused and (s.problem is not null or d.due_at < v_now - interval '1 minute')
  order by s.problem is null desc, d.due_at
  limit 10;
end
$$;

comment on function pgwake.diagnose_schedules is
  'Internal: for diagnose, schedules that nobody fires, or that can''t be fired.';
revoke all on function pgwake.diagnose_schedules from public;

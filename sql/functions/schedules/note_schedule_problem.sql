-- Notes why a schedule's ticks can't be computed, or became no job. It is tried again
-- after a minute, with the ticks that it has missed then; who fires or replaces it
-- clears it.
--
-- version as in fire_schedule(). The text is clipped at 1,000 characters. Returns
-- whether it is news, to be logged; false too if the version is void. Locks the
-- schedule's row, waits for nobody. Rides schedules_pkey.
create or replace function pgwake.note_schedule_problem(name text, version text, problem text)
returns boolean
language plpgsql volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_problem text;
begin
  select s.problem into v_problem
  from pgwake.schedules as s
  where s.name = note_schedule_problem.name and s.xmin::text = note_schedule_problem.version
  for update skip locked;
  if not found then
    return false;
  end if;
  update pgwake.schedules as s
  set problem = left(note_schedule_problem.problem, 1000), problem_at = pgwake.now()
  where s.name = note_schedule_problem.name;
  return left(note_schedule_problem.problem, 1000) is distinct from v_problem;
end
$$;

comment on function pgwake.note_schedule_problem is
  'Notes why a schedule''s ticks became no jobs; returns whether that is news.';
revoke all on function pgwake.note_schedule_problem from public;

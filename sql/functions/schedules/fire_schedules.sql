-- fire_schedule of many schedules by one statement, for where many are due at once.
--
-- names, versions, next_ats: parallel arrays, of one schedule each. ticks: those of all
-- of them, one schedule's after the other's; tick_counts: how many are of each.
--
-- Returns what fire_schedule returns for each, in the order given. What is refused for
-- one is raised, and nothing is fired: fire each by itself then. Raises PW003 for arrays
-- that don't pair up.
create or replace function pgwake.fire_schedules(
  names text[], versions text[], next_ats timestamptz[], ticks timestamptz[], tick_counts int[]
)
returns int[]
language plpgsql volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_to int := 0;
  v_counts int[] := '{}';
begin
  if not (cardinality(fire_schedules.names) = all (array[
      cardinality(fire_schedules.versions), cardinality(fire_schedules.next_ats),
      cardinality(fire_schedules.tick_counts)]))
    or cardinality(fire_schedules.ticks) is distinct from (
      select coalesce(sum(c.ticks), 0) from unnest(fire_schedules.tick_counts) as c(ticks) where c.ticks >= 0)
    or cardinality(fire_schedules.names) is null
  then
    perform pgwake.raise_invalid(
      'the arrays of fire_schedules do not pair up',
      'Pass a version, a next_at and a number of ticks for each name, and as many ticks as these are together.');
  end if;
  for v_place in 1..cardinality(fire_schedules.names) loop
    v_counts := v_counts || pgwake.fire_schedule(
      fire_schedules.names[v_place], fire_schedules.versions[v_place],
      fire_schedules.ticks[v_to + 1 : v_to + fire_schedules.tick_counts[v_place]], fire_schedules.next_ats[v_place]);
    v_to := v_to + fire_schedules.tick_counts[v_place];
  end loop;
  return v_counts;
end
$$;

comment on function pgwake.fire_schedules is
  'fire_schedule of many schedules by one statement.';
revoke all on function pgwake.fire_schedules from public;

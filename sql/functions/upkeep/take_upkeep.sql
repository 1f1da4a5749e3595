-- Takes a turn of the upkeep for a worker, unless another worker has it: one that took
-- a turn in the last three seconds. A worker that may not sweep yet has to let one that
-- may go before.
--
-- done: which steps the worker has done since its last turn. Returns steps, what it is
-- to do now, in this order: schedules (see due_schedules) and steps of maintain; none
-- if another worker has the turn. And done_ago: how many seconds ago each step was last
-- done, by whichever worker.
--
-- Whoever has it comes back each second; the others look now and then, which reads
-- only. Schedules, sweep and children are in every turn, the others when their time has
-- come since the last turn, by the clock, and in a worker's first turn all but recount.
-- There are none in a copy that nobody has adopted: see adopt.
--
-- Each turn is a row of its own, found from the newest end of upkeep_turns_pkey: under
-- an old snapshot nobody wades through those before. Raises PW003.
create or replace function pgwake.take_upkeep(
  worker text,
  may_sweep boolean,
  done text[],
  out steps text[],
  out done_ago jsonb
)
returns record
language plpgsql volatile
security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
declare
  v_now constant timestamptz := pgwake.now();
  v_all constant text[] := '{schedules,sweep,children,fold,keys,retention,analyze,ids,recount}';
  v_last pgwake.upkeep_turns;
  v_done jsonb;
begin
  steps := '{}';
  done_ago := '{}';
  if coalesce(take_upkeep.worker, '') = '' or take_upkeep.may_sweep is null
    or (take_upkeep.done <@ v_all) is not true
  then
    perform pgwake.raise_invalid(
      'worker or may_sweep is null or empty, or done names what is no step',
      format('Pass the worker''s name, true or false, and an array of: %s.', array_to_string(v_all, ', ')));
  end if;
  if not pgwake.is_adopted() then
    return;
  end if;
  select t.* into v_last from pgwake.upkeep_turns as t order by t.id desc limit 1;

  if v_last.worker <> take_upkeep.worker and v_last.at between v_now - interval '3 seconds' and v_now
    and (v_last.may_sweep or not take_upkeep.may_sweep)
  then
    v_done := v_last.done;
  else
    v_done := coalesce(v_last.done, '{}') || (
      select coalesce(jsonb_object_agg(d.step, extract(epoch from v_now)), '{}') from unnest(take_upkeep.done) as d(step));
    perform set_config('synchronous_commit', 'off', true);  -- what is lost in a crash is one turn
    insert into pgwake.upkeep_turns (id, worker, at, may_sweep, done)
    values (coalesce(v_last.id, 0) + 1, take_upkeep.worker, v_now, take_upkeep.may_sweep, v_done)
    on conflict do nothing;
    if found then
      delete from pgwake.upkeep_turns as t where t.id = v_last.id;
      steps := array(
        select s.step
        from (
          values (1, 'schedules', 0), (2, 'sweep', 0), (3, 'children', 0), (4, 'fold', 5), (5, 'keys', 10),
            (6, 'retention', 60), (7, 'analyze', 60), (8, 'ids', 60), (9, 'recount', 3600)
        ) as s(place, step, seconds)
        where s.seconds = 0
          or (v_last.worker is distinct from take_upkeep.worker and s.step <> 'recount')
          -- places apart, so that not all is done in the same second
          or floor((extract(epoch from v_last.at) + s.place * 7) / nullif(s.seconds, 0))
            is distinct from floor((extract(epoch from v_now) + s.place * 7) / nullif(s.seconds, 0))
        order by s.place);
    end if;
  end if;
  done_ago := (
    select coalesce(jsonb_object_agg(d.key, extract(epoch from v_now) - d.value::text::numeric), '{}')
    from jsonb_each(v_done) as d);
end
$$;

comment on function pgwake.take_upkeep is
  'Takes a turn of the upkeep, unless another worker has it; returns the steps to do now.';
revoke all on function pgwake.take_upkeep from public;

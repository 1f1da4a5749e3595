-- One step of the upkeep: sweep, fold, retention, analyze, recount, keys, children or
-- ids; without a step, sweep and fold.
--
-- Workers call sweep and children each second, fold each five, keys each ten, recount each
-- hour and the others each minute, one worker for all: see take_upkeep. Where there is no worker,
-- cron or psql may. Each step has an advisory lock of its own, for the transaction:
-- whoever comes second skips it. Call each step in its own transaction.
--
-- Returns an object: the step's name with how many jobs or rows it handled, and
-- crashed, a list of [queue, kind, count, of them failed, of them cancelled], and
-- expired, one of [queue, kind, count], if the sweep found any. A skipped step is not
-- in it. In a copy of the database that nobody has adopted all are skipped, so that it
-- stays as it was: see adopt. Raises PW003 for an unknown step.
create or replace function pgwake.maintain(step text default null)
returns jsonb
language plpgsql volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_steps constant text[] := array['sweep', 'fold', 'retention', 'analyze', 'recount', 'keys', 'children', 'ids'];
  v_step text;
  v_count bigint;
  v_crashed jsonb;
  v_expired jsonb;
  v_done jsonb := '{}';
begin
  if maintain.step <> all (v_steps) then
    perform pgwake.raise_invalid(
      format('step is %L', maintain.step), 'Use sweep, fold, retention, analyze, recount, keys, children or ids.');
  end if;
  if not pgwake.is_adopted() then
    return v_done;
  end if;
  foreach v_step in array
    case when maintain.step is null then v_steps[1:2] else array[maintain.step] end
  loop
    continue when not pg_try_advisory_xact_lock(1885828971, array_position(v_steps, v_step));
    if v_step = 'sweep' then
      select coalesce(sum(s.job_count), 0),
        jsonb_agg(jsonb_build_array(s.queue, s.kind, s.job_count, s.failed_count, s.cancelled_count))
      into v_count, v_crashed
      from pgwake.sweep_expired_leases() as s;
      select jsonb_agg(jsonb_build_array(e.queue, e.kind, e.job_count)) into v_expired
      from pgwake.cancel_expired() as e;
      v_done := v_done || jsonb_strip_nulls(jsonb_build_object('crashed', v_crashed, 'expired', v_expired));
    else
      v_count := case v_step
        when 'fold' then pgwake.fold_counts()
        when 'retention' then pgwake.apply_retention() + pgwake.forget_stale_reports() + pgwake.forget_events()
          + pgwake.forget_unique_periods()
        when 'analyze' then pgwake.analyze_jobs()
        when 'recount' then pgwake.recount_jobs()
        when 'keys' then pgwake.flag_missed_keys(2000)
        when 'children' then pgwake.wake_unseen_events() + pgwake.recheck_children()
        when 'ids' then pgwake.lift_ids()
      end;
    end if;
    v_done := v_done || jsonb_build_object(v_step, v_count);
  end loop;
  return v_done;
end
$$;

comment on function pgwake.maintain is
  'One step of the upkeep: sweep, fold, retention, analyze, recount, keys, children or ids; '
  'without one, sweep and fold.';
revoke all on function pgwake.maintain from public;

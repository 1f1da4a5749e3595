-- For explain_job: which event or end of another job a job waits for, and until when.
-- Null if it waits for none. Rides waits_pkey and rechecks_child_idx.
create or replace function pgwake.explain_awaited(job_id bigint)
returns text
language plpgsql stable
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
  v_wait pgwake.waits;
begin
  select w.* into v_wait from pgwake.waits as w where w.job_id = explain_awaited.job_id;
  if not found then
    return null;
  end if;
  return format(
    'It waits for %s since %s, %s.',
    case
      when v_wait.event is not null then 'event ' || pgwake.say_name(v_wait.event)
      else format('the end of job %s', v_wait.other_id)
    end,
    pgwake.say_time(v_wait.since),
    case
      when exists (
        select from pgwake.rechecks as r where r.child_id = explain_awaited.job_id and r.at <= pgwake.now())
      then 'and is woken: the next claim of the queue sees to it, or select pgwake.maintain(''children'')'
      when v_wait.deadline is null then 'without a time-out'
      else 'until ' || pgwake.say_time(v_wait.deadline)
    end);
end
$$;

comment on function pgwake.explain_awaited is
  'Internal: for explain_job, which event or end of another job a job waits for.';
revoke all on function pgwake.explain_awaited from public;

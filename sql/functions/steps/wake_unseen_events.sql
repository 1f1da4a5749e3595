-- Wakes the jobs that wait for events which came under repeatable read. Internal: for
-- maintain('children'). Returns how many jobs. Rides events_unseen_idx.
create or replace function pgwake.wake_unseen_events(max_events int default 1000)
returns int
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
  v_events text[];
begin
  with seen as (
    update pgwake.events as e
    set is_unseen = null
    where e.ctid = any (array(
      select u.ctid from pgwake.events as u where u.is_unseen limit wake_unseen_events.max_events for update skip locked))
    returning e.name
  )
  select array_agg(s.name) into v_events from seen as s;
  return case when v_events is null then 0 else pgwake.wake_waits(v_events, null) end;
end
$$;

comment on function pgwake.wake_unseen_events is
  'Internal: wakes the jobs that wait for events which came under repeatable read.';
revoke all on function pgwake.wake_unseen_events from public;

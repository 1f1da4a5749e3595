-- Removes events that have expired (see emit_event on how long they are kept) and that no
-- live job waits for. Internal: for
-- maintain('retention'). Returns how many. Rides events_expires_at_idx and
-- waits_event_idx.
create or replace function pgwake.forget_events(max_events int default 5000)
returns int
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
  v_count int;
begin
  delete from pgwake.events as e
  where e.ctid = any (array(
    select o.ctid
    from pgwake.events as o
    where o.expires_at < pgwake.now()
      and not exists (
        select from pgwake.waits as w
        where w.event = o.name and exists (select from pgwake.jobs_live as j where j.id = w.job_id))
    order by o.expires_at
    limit forget_events.max_events
    for update of o skip locked));
  get diagnostics v_count = row_count;
  return v_count;
end
$$;

comment on function pgwake.forget_events is
  'Internal: removes events that have expired.';
revoke all on function pgwake.forget_events from public;

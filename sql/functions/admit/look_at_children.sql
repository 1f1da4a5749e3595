-- Looks at the children that nobody has looked at for a second: in queues whose workers
-- are gone, or that are paused or full. Internal: a step of maintain.
--
-- About max_looks looks a call; returns how many it handled. Rides looks_child_idx.
-- Under an old snapshot it wades through an entry for every look since: a session in
-- which those were more than 5,000 does not look again before 20 times the time it took,
-- or a minute (the setting pgwake.children_at).
create or replace function pgwake.look_at_children(max_looks int default 2000)
returns int
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
declare
  v_began_at timestamptz := clock_timestamp();
  v_look_at timestamptz := nullif(current_setting('pgwake.children_at', true), '');
  v_read bigint := pg_stat_get_xact_tuples_returned('pgwake.looks_child_idx'::regclass);
  v_queue text;
  v_count int := 0;
begin
  if v_look_at between v_began_at and v_began_at + interval '1 minute' then
    return 0;
  end if;
  for v_queue in
    select distinct l.queue
    from (
      select l.queue
      from pgwake.looks as l
      where l.child_id is not null and l.at < pgwake.now() - interval '1 second'
      order by l.child_id
      limit look_at_children.max_looks
    ) as l
  loop
    exit when v_count >= look_at_children.max_looks;
    v_count := v_count + (
      select o.look_count
      from pgwake.open_children(
        v_queue, pgwake.now(), '-infinity', look_at_children.max_looks - v_count, pgwake.get_audience()) as o);
  end loop;
  if pg_stat_get_xact_tuples_returned('pgwake.looks_child_idx'::regclass) - v_read > 5000 then
    v_look_at := clock_timestamp() + least(20 * (clock_timestamp() - v_began_at), interval '1 minute');
    perform set_config('pgwake.children_at', v_look_at::text, false);
  end if;
  return v_count;
end
$$;

comment on function pgwake.look_at_children is
  'Internal: looks at children that nobody has looked at for a second.';
revoke all on function pgwake.look_at_children from public;

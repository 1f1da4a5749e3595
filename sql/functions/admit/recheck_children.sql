-- Rechecks the children that nobody has rechecked for a second: in queues whose workers
-- are gone, or that are paused or full; and once a minute a session 1,000 that may have
-- lost their rechecks: see flag_lost_children. Internal: a step of maintain.
--
-- About max_rechecks rows a call; returns how many it handled. Rides
-- rechecks_child_idx. Under an old snapshot it wades through an entry for every recheck
-- since: a session in which those were more than 5,000 does not look again before 20
-- times the time it took, or a minute (the setting pgwake.children_at).
create or replace function pgwake.recheck_children(max_rechecks int default 2000)
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
  v_recheck_at timestamptz := nullif(current_setting('pgwake.children_at', true), '');
  v_read bigint := pg_stat_get_xact_tuples_returned('pgwake.rechecks_child_idx'::regclass);
  v_flag_at timestamptz := nullif(current_setting('pgwake.lost_children_at', true), '');
  v_lost text[] := '{}';
  v_queue text;
  v_count int := 0;
begin
  if v_recheck_at between v_began_at and v_began_at + interval '1 minute' then
    return 0;
  end if;
  if (v_flag_at between v_began_at and v_began_at + interval '1 minute') is not true then
    v_lost := pgwake.flag_lost_children();
    if v_lost = '{}' then  -- else more may be lost: the next call goes on
      perform set_config('pgwake.lost_children_at', (v_began_at + interval '55 s')::text, false);
    end if;
  end if;
  for v_queue in
    select unnest(v_lost)
    union
    select r.queue
    from (
      select r.queue
      from pgwake.rechecks as r
      where r.child_id is not null and r.at < pgwake.now() - interval '1 second'
      order by r.child_id
      limit recheck_children.max_rechecks
    ) as r
  loop
    exit when v_count >= recheck_children.max_rechecks;
    v_count := v_count + (
      select o.recheck_count
      from pgwake.admit_children(
        v_queue, pgwake.now(), '-infinity', recheck_children.max_rechecks - v_count, pgwake.get_audience()) as o);
  end loop;
  if pg_stat_get_xact_tuples_returned('pgwake.rechecks_child_idx'::regclass) - v_read > 5000 then
    v_recheck_at := clock_timestamp() + least(20 * (clock_timestamp() - v_began_at), interval '1 minute');
    perform set_config('pgwake.children_at', v_recheck_at::text, false);
  end if;
  return v_count;
end
$$;

comment on function pgwake.recheck_children is
  'Internal: rechecks children that nobody has rechecked for a second.';
revoke all on function pgwake.recheck_children from public;

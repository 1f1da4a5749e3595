-- For diagnose: leaves of the ring that should have been truncated a day ago.
--
-- leaf_kept  warning  all its rows are past the longest retention: a reader is in the
--                     way at each try, or nobody calls maintain('retention')
--
-- Told by the days that a leaf is for, so that nothing is read; what is left is looked
-- into, riding jobs_finished_N_finished_at_idx. value: bytes.
create or replace function pgwake.diagnose_retention()
returns setof pgwake.finding
language plpgsql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
declare
  v_now timestamptz := pgwake.now();
  v_current constant int := pgwake.finished_slot(v_now);
  v_kept_from timestamptz;
  v_leaf regclass;
  v_is_past boolean;
  v_count int := 0;
begin
  select v_now - interval '1 day' - greatest(max(q.retention_completed), interval '7 days') into v_kept_from
  from pgwake.queues as q;
  for v_leaf in
    select l.leaf
    from pgwake.installation as i
    cross join generate_series(30, 2, -1) as b(back)
    cross join lateral (select format('pgwake.jobs_finished_%s', (v_current - b.back + 32) % 32)::regclass as leaf) as l
    where v_now - (b.back - 1) * i.width * interval '1 day' < v_kept_from and pg_relation_size(l.leaf) > 0
  loop
    execute format(
      'select exists (select from %1$s) and not exists (select from %1$s where finished_at >= $1)', v_leaf)
    into v_is_past using v_kept_from;
    continue when not v_is_past;
    v_count := v_count + 1;
    return query
    select 'leaf_kept', 'warning', v_leaf::text,
      format('all jobs of %s are past their retention, and it was not truncated', v_leaf)
        || case when h.pid is null then '' else format(': session %s of role %s, application %s is in the way', h.pid,
          h.usesysid::regrole, pgwake.say_name(h.application_name)) end,
      case when h.pid is null
        then format('truncate %s;  -- workers do, once an hour, if they get its lock in 100 ms', v_leaf)
        else format('select pg_terminate_backend(%s);  -- then the upkeep truncates it within an hour', h.pid) end,
      pg_relation_size(v_leaf)::double precision
    from (values (1)) as o
    left join lateral (
      select l.pid, a.usesysid, a.application_name
      from pg_locks as l
      join pg_stat_get_activity(null) as a on a.pid = l.pid
      where l.locktype = 'relation' and l.relation = v_leaf and l.granted and a.datid = l.database
        and l.database = (select d.oid from pg_database as d where d.datname = current_database())
        and l.pid <> pg_backend_pid()
      limit 1
    ) as h on true;
    exit when v_count = 10;
  end loop;
end
$$;

comment on function pgwake.diagnose_retention is
  'Internal: for diagnose, leaves that should have been truncated.';
revoke all on function pgwake.diagnose_retention from public;

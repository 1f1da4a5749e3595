-- Refreshes the statistics of leaves that changed much since the last time; returns how
-- many it analyzed. Needs the tables' owner (or MAINTAIN from PostgreSQL 17 on). No
-- plan of pgwake's depends on statistics: they serve people's own queries.
create or replace function pgwake.analyze_jobs()
returns int
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  v_leaf regclass;
  v_lock_timeout text := current_setting('lock_timeout');
  v_count int := 0;
begin
  for v_leaf in
    select s.relid::regclass
    from pg_stat_user_tables as s
    where s.schemaname = 'pgwake' and s.relname ~ '^jobs_(live|f)'
      and s.n_mod_since_analyze > 1000 + s.n_live_tup / 10
    order by s.relid
  loop
    begin
      perform set_config('lock_timeout', '100ms', true);
      execute format('analyze %s', v_leaf);
      v_count := v_count + 1;
      perform set_config('lock_timeout', v_lock_timeout, true);
    exception when lock_not_available then
      null;  -- autovacuum is at it; the setting is rolled back with the block
    end;
  end loop;
  return v_count;
end
$$;

comment on function pgwake.analyze_jobs is
  'Internal: refreshes the statistics of leaves that changed much; returns how many.';
revoke all on function pgwake.analyze_jobs from public;

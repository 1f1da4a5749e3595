-- Locks tables and their partitions in access exclusive mode for a migration, without
-- keeping the queue's users waiting: a try lasts 25 to 200 ms, in which whoever wants
-- them waits behind it, and then lets go of all; until the next one it pauses for three
-- times as long. Short tries, since users take these locks in any order: who has one of
-- them and waits for another of ours ends the try. Gives up after pgwake.lock_patience
-- (an interval; default 1 minute) with 55P03, whose hint says who is in the way.
create or replace function pgwake.lock_tables(variadic tables regclass[])
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  v_patience constant interval := coalesce(nullif(current_setting('pgwake.lock_patience', true), ''), '1 minute');
  v_give_up_at constant timestamptz := clock_timestamp() + v_patience;
  v_lock_timeout constant text := current_setting('lock_timeout');
  v_tables regclass[];
  v_table regclass;
  v_seconds double precision := 0.025;
  v_let_go_at timestamptz;
begin
  -- each before its partitions, as everybody locks them
  select array_agg(l.relid::regclass order by l.place, l.level, l.relid) into v_tables
  from (
    select u.relid, n.place, coalesce(t.level, 0) as level
    from unnest(lock_tables.tables) with ordinality as n(root, place)
    left join lateral pg_partition_tree(n.root) as t on true
    cross join lateral (select coalesce(t.relid, n.root)::oid as relid) as u
  ) as l;

  loop
    begin
      -- Autovacuum ends itself for who has waited for deadlock_timeout; in this mode nobody else has to wait behind us.
      perform set_config('lock_timeout', ceil(extract(epoch from current_setting('deadlock_timeout')::interval) * 1000
        + 1000) || 'ms', true);
      foreach v_table in array v_tables loop
        execute format('lock table only %s in share update exclusive mode', v_table);
      end loop;

      v_let_go_at := clock_timestamp() + make_interval(secs => v_seconds);  -- lock_timeout is for each table
      foreach v_table in array v_tables loop
        perform set_config('lock_timeout', greatest(ceil(extract(epoch from v_let_go_at - clock_timestamp()) * 1000), 1)
          || 'ms', true);
        execute format('lock table only %s in access exclusive mode', v_table);
      end loop;
      perform set_config('lock_timeout', v_lock_timeout, true);
      return;
    exception when lock_not_available then
      null;  -- its locks are gone, and the setting is rolled back
    end;
    exit when clock_timestamp() > v_give_up_at;
    perform pg_sleep(3 * v_seconds);
    v_seconds := case when v_seconds < 0.2 then 2 * v_seconds else 0.025 end;
  end loop;

  raise exception using
    errcode = 'lock_not_available',
    message = format('%s could not be locked within %s',
                     array_to_string(lock_tables.tables, ' and '), v_patience),
    hint = coalesce('In the way: ' || pgwake.say_lock_holders(v_tables) || '. ', '')
      || 'Let these transactions end, or end them, and run it again: nothing has been changed.';
end
$$;

comment on function pgwake.lock_tables is
  'Internal: locks tables for a migration, by short tries.';
revoke all on function pgwake.lock_tables from public;

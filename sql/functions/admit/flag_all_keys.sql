-- Flags every concurrency key of a queue for which a job waits. Steps from key
-- to key; rides jobs_key_idx. Returns how many.
create or replace function pgwake.flag_all_keys(queue text)
returns int
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
declare
  v_key text := '';
  v_count int := 0;
begin
  loop
    select j.concurrency_key into v_key
    from pgwake.jobs_live as j
    where j.queue = flag_all_keys.queue and j.status = 'waiting' and j.concurrency_key > v_key
      and j.has_parents_left is not true
    order by j.concurrency_key
    limit 1;
    exit when not found;
    insert into pgwake.rechecks (queue, at, key) values (flag_all_keys.queue, pgwake.now(), v_key);
    v_count := v_count + 1;
  end loop;
  if v_count > 0 then
    perform pgwake.wake(flag_all_keys.queue);
  end if;
  return v_count;
end
$$;

comment on function pgwake.flag_all_keys is
  'Internal: flags every concurrency key of a queue.';
revoke all on function pgwake.flag_all_keys from public;

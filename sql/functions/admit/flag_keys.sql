-- Flags concurrency keys that may have room for a job that waits, and wakes their
-- queues: called for each job with a key that ends, is put off, or comes back. Parallel
-- arrays; a null key is none. Who claims next checks the keys: see admit_keys.
--
-- No lock but its own new rows', so it may be called in anybody's transaction.
create or replace function pgwake.flag_keys(queues text[], keys text[])
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  insert into pgwake.rechecks (queue, at, key)
  select distinct u.queue, pgwake.now(), u.key
  from unnest(flag_keys.queues, flag_keys.keys) as u(queue, key)
  where u.key is not null;
  if found then
    perform pgwake.wake(u.queue)
    from (
      select distinct u.queue from unnest(flag_keys.queues, flag_keys.keys) as u(queue, key)
      where u.key is not null
    ) as u;
  end if;
end
$$;

comment on function pgwake.flag_keys is
  'Internal: flags concurrency keys that may have room.';
revoke all on function pgwake.flag_keys from public;

-- Says that concurrency keys may have room for a job that waits, and wakes their queues:
-- called for each job with a key that ends, is put off, or comes back. Parallel arrays;
-- a null key is none. Who claims next looks at the keys: see open_keys.
--
-- No lock but its own new rows', so it may be called in anybody's transaction.
create or replace function pgwake.free_keys(queues text[], keys text[])
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  insert into pgwake.looks (queue, at, key)
  select distinct u.queue, pgwake.now(), u.key
  from unnest(free_keys.queues, free_keys.keys) as u(queue, key)
  where u.key is not null;
  if found then
    perform pgwake.wake(u.queue)
    from (
      select distinct u.queue from unnest(free_keys.queues, free_keys.keys) as u(queue, key)
      where u.key is not null
    ) as u;
  end if;
end
$$;

comment on function pgwake.free_keys is
  'Internal: says that concurrency keys may have room.';
revoke all on function pgwake.free_keys from public;

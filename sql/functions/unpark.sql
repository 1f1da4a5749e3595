-- Gives the queue's bell up, and passes the baton: others that sleep are told on channel
-- pgwake_baton to try for the bell. baton => false for who comes back before it sleeps
-- or is busy for long, and will look at the queue then.
--
-- Returns whether this session had the bell (if not, the server warns). Raises PW003.
create or replace function pgwake.unpark(queue text default 'default', baton boolean default true)
returns boolean
language plpgsql volatile
set search_path = ''
as $$
declare
  v_had boolean;
begin
  if unpark.queue is null then
    perform pgwake.raise_invalid('queue is null', 'Name the queue whose bell to give up.');
  end if;
  -- Told after the unlock: before, they would try in vain, and sleep.
  v_had := pg_advisory_unlock(pgwake.bell_key(unpark.queue));
  if unpark.baton then
    perform pgwake.pass_baton(unpark.queue);
  end if;
  return v_had;
end
$$;

comment on function pgwake.unpark is
  'Gives the queue''s bell up, and tells the others that sleep to try for it.';
revoke all on function pgwake.unpark from public;

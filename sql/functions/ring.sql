-- Wakes the workers of a queue when the transaction commits: NOTIFY on channel pgwake,
-- the queue's name as payload.
--
-- set pgwake.notify = off silences it for a session, for producers that need two-phase
-- commit; the workers' poll finds their jobs. Every way into pending calls this, due or
-- not, since a sleeper's timer may have to be set anew.
create or replace function pgwake.ring(queue text)
returns void
language plpgsql volatile
set search_path = ''
as $$
begin
  if coalesce(nullif(current_setting('pgwake.notify', true), ''), 'on') <> 'off' then
    perform pg_notify('pgwake', ring.queue);
  end if;
end
$$;

comment on function pgwake.ring is 'Wakes the workers of a queue at commit.';
revoke all on function pgwake.ring from public;

-- Wakes who sleeps on a queue when the transaction commits: NOTIFY on channel pgwake,
-- the queue's name as payload. If nobody has the queue's notify lock, nobody need be
-- woken, and none is sent: see park(). A queue with wakeups = 'always' sends it all the
-- same.
--
-- set pgwake.notify = off silences it for a session, for producers that need two-phase
-- commit; the workers' poll finds their jobs. Every way into pending calls this, due or
-- not, since a sleeper's timer may have to be set anew. The caller has written to
-- jobs_live, or has its lock in row exclusive mode: that comes before the probe, so
-- that who takes the notify lock right after it sees this transaction in
-- open_writers().
--
-- Without a set clause, which would cost each INSERT a microsecond: all is qualified.
create or replace function pgwake.wake(queue text)
returns void
language plpgsql volatile
as $$
begin
  if pg_catalog.current_setting('pgwake.notify', true) operator(pg_catalog.=) 'off' then
    return;
  end if;
  if not pgwake.is_notify_lock_held(wake.queue) then
    perform from pgwake.queues as q
    where q.name operator(pg_catalog.=) wake.queue and q.wakeups operator(pg_catalog.=) 'always';
    if not found then
      return;
    end if;
  end if;
  perform pg_catalog.pg_notify('pgwake', wake.queue);
end
$$;

comment on function pgwake.wake is 'Internal: wakes who sleeps on a queue at commit.';
revoke all on function pgwake.wake from public;

-- Whether somebody has a queue's notify lock, and so is to be woken: see park(). In one
-- expression: between two statements a time-out would leave the lock held. Plain SQL
-- without a set clause, so that the planner puts it inline.
create or replace function pgwake.is_notify_lock_held(queue text)
returns boolean
language sql volatile
as $$
  select not (
    pg_catalog.pg_try_advisory_lock_shared(pgwake.notify_lock_key(queue))
    and pg_catalog.pg_advisory_unlock_shared(pgwake.notify_lock_key(queue)))
$$;

comment on function pgwake.is_notify_lock_held is 'Internal: whether somebody has a queue''s notify lock.';
revoke all on function pgwake.is_notify_lock_held from public;

-- What a running job that goes back is: pending, or waiting for its turn again if it
-- has a concurrency key that it does not keep. It keeps it if it is due at once, or if
-- its queue keeps the order. Plain SQL without a set clause, so that the planner puts it
-- inline.
create or replace function pgwake.status_after_attempt(
  concurrency_key text, delay interval, keep_order boolean
)
returns text
language sql immutable
as $$
  select case
    when status_after_attempt.concurrency_key is null then 'pending'
    when coalesce(status_after_attempt.delay, interval '0') operator(pg_catalog.<=) interval '0' then 'pending'
    when status_after_attempt.keep_order then 'pending'
    else 'waiting'
  end
$$;

comment on function pgwake.status_after_attempt is
  'Internal: whether a job that goes back is pending or waiting.';
revoke all on function pgwake.status_after_attempt from public;

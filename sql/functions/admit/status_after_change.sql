-- What a job that waits is when its queue or time has been changed: one that had room in
-- its concurrency key waits for it again in another queue, and if it is put off, unless
-- its queue keeps the order. Plain SQL without a set clause, so that the planner puts it
-- inline.
create or replace function pgwake.status_after_change(
  status text, concurrency_key text, is_moved boolean, is_retimed boolean, run_at timestamptz, keep_order boolean
)
returns text
language sql stable
as $$
  select case
    when status_after_change.status operator(pg_catalog.<>) 'pending' or status_after_change.concurrency_key is null
      then status_after_change.status
    when status_after_change.is_moved then 'waiting'
    when status_after_change.is_retimed and status_after_change.run_at operator(pg_catalog.>) pgwake.now()
      and status_after_change.keep_order is not true then 'waiting'
    else 'pending'
  end
$$;

comment on function pgwake.status_after_change is
  'Internal: what a job that waits is when its queue or time has been changed.';
revoke all on function pgwake.status_after_change from public;

-- A job's errors with one more failed attempt; the last 20 are kept, messages and
-- tracebacks clipped to 2,000 characters, tracebacks at their beginning, and reasons to
-- 100, so that a row's size stays bounded. Plain SQL without a set clause, so that the
-- planner puts it inline.
create or replace function pgwake.append_error(
  errors jsonb, attempt int, worker text, reason text, message text, traceback text default null
)
returns jsonb
language sql stable
as $$
  select
    case
      when pg_catalog.jsonb_array_length(append_error.errors) operator(pg_catalog.>=) 20
        then append_error.errors operator(pg_catalog.-) 0
      else coalesce(append_error.errors, '[]')
    end
    operator(pg_catalog.||) pg_catalog.jsonb_build_array(pg_catalog.jsonb_build_object(
      'attempt', append_error.attempt,
      'at', pgwake.now(),
      'worker', append_error.worker,
      'reason', pg_catalog.left(append_error.reason, 100),
      'message', pg_catalog.left(append_error.message, 2000)
    ) operator(pg_catalog.||) case
      when append_error.traceback is null then '{}'
      else pg_catalog.jsonb_build_object('traceback', pg_catalog.right(append_error.traceback, 2000))
    end)
$$;

comment on function pgwake.append_error is
  'Internal: a job''s errors with one more failed attempt.';
revoke all on function pgwake.append_error from public;

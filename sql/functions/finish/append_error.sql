-- A job's errors with one more failed attempt; the last 20 are kept, messages and
-- tracebacks clipped to 2,000 characters, tracebacks at their beginning, and reasons to
-- 100, so that a row's size stays bounded.
create or replace function pgwake.append_error(
  errors jsonb, attempt int, worker text, reason text, message text, traceback text default null
)
returns jsonb
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select
    case
      when jsonb_array_length(append_error.errors) >= 20 then append_error.errors - 0
      else coalesce(append_error.errors, '[]')
    end
    || jsonb_build_array(jsonb_build_object(
      'attempt', append_error.attempt,
      'at', pgwake.now(),
      'worker', append_error.worker,
      'reason', left(append_error.reason, 100),
      'message', left(append_error.message, 2000)
    ) || case
      when append_error.traceback is null then '{}'
      else jsonb_build_object('traceback', right(append_error.traceback, 2000))
    end)
$$;

comment on function pgwake.append_error is
  'Internal: a job''s errors with one more failed attempt.';
revoke all on function pgwake.append_error from public;

-- How long a job waits before its next attempt: full jitter,
--   greatest(100 ms, random() * least(cap, base * 2^(attempt - 1)))
-- after "Exponential Backoff And Jitter" (AWS Architecture Blog, 2015). Reckoned in
-- seconds, as double precision with a clamped exponent, so that no attempt can
-- overflow.
create or replace function pgwake.retry_delay(
  attempt int,
  base interval default null,              -- null: 1 second
  cap interval default null,               -- null: 1 hour
  jitter double precision default random() -- from 0 to 1
)
returns interval
language sql volatile parallel safe
set search_path = ''
as $$
  select make_interval(secs => greatest(
    0.1,
    retry_delay.jitter * least(
      extract(epoch from coalesce(retry_delay.cap, interval '1 hour')),
      extract(epoch from coalesce(retry_delay.base, interval '1 second'))
        * 2 ^ least(greatest(retry_delay.attempt, 1) - 1, 1000)
    )
  ))
$$;

comment on function pgwake.retry_delay is
  'Full-jitter delay before the attempt after this one.';
revoke all on function pgwake.retry_delay from public;

-- How long a job waits before its next attempt: exponential, of which a share is drawn:
--   least(cap, base * 2^(attempt - 1)) * (1 - jitter * draw), at least 100 ms
-- The default jitter of 1 is "full jitter", after "Exponential Backoff And Jitter" (AWS
-- Architecture Blog, 2015); 0 is none. Reckoned in seconds, as numeric with a clamped
-- exponent, and at most 10,000 years, so that nothing can overflow. Plain SQL without a
-- set clause, so that the planner puts it inline.
create or replace function pgwake.retry_delay(
  attempt int,
  base interval default null,             -- null: 1 second
  cap interval default null,              -- null: 1 hour
  jitter double precision default null,   -- 0 to 1; null: 1
  draw double precision default random()  -- 0 to 1
)
returns interval
language sql volatile parallel safe
as $$
  select pg_catalog.make_interval(secs => least(315576000000, greatest(
    0.1,
    (1 operator(pg_catalog.-) (coalesce(retry_delay.jitter, 1)::numeric operator(pg_catalog.*) retry_delay.draw::numeric))
    operator(pg_catalog.*) least(
      extract(epoch from coalesce(retry_delay.cap, interval '1 hour')),
      extract(epoch from coalesce(retry_delay.base, interval '1 second')) operator(pg_catalog.*)
        (2 operator(pg_catalog.^) least(greatest(retry_delay.attempt, 1) operator(pg_catalog.-) 1, 100))
    )::numeric
  )))
$$;

comment on function pgwake.retry_delay is
  'Delay before the attempt after this one: exponential, with jitter.';
revoke all on function pgwake.retry_delay from public;

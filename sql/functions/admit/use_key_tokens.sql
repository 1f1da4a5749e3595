-- Takes a token for each of these jobs, just started at that time, from the buckets of
-- their concurrency keys, where they have a rate: see key_room. Internal, for claim_rows.
--
-- A bucket is the time when it is full again: a token moves that on by 1 / rate seconds. So
-- over any t seconds at most burst + rate * t jobs of a key start, by started_at. What is
-- admitted has a token left for it, since it counts against the bucket until it starts,
-- and the claim that starts it uses the token in the same transaction. Only a job that
-- kept its room while it went back (given back, crashed, due at once) starts without
-- looking for one; it uses one all the same. A clock that was put back fills nothing until
-- it is again where it was.
--
-- Two claims that start jobs of one key wait for each other, key by key. Upkeep deletes
-- full buckets. Rides jobs_live_pkey and key_buckets_pkey.
create or replace function pgwake.use_key_tokens(queue text, job_ids bigint[], at timestamptz)
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
#variable_conflict use_column
begin
  insert into pgwake.key_buckets as b (queue, key, full_at)
  select use_key_tokens.queue, s.key, use_key_tokens.at + interval '1 second' * (s.starts / s.rate)
  from (
    select j.concurrency_key as key, count(*) as starts, coalesce(o.rate_limit, q.key_rate) as rate
    from pgwake.jobs_live as j
    left join pgwake.queues as q on q.name = j.queue
    left join pgwake.concurrency_limits as o on o.queue = j.queue and o.key = j.concurrency_key
    where j.id = any (use_key_tokens.job_ids) and j.concurrency_key is not null
    group by j.concurrency_key, coalesce(o.rate_limit, q.key_rate)
  ) as s
  where s.rate is not null
  order by s.key
  on conflict (queue, key) do update
  set full_at = greatest(b.full_at, use_key_tokens.at) + (excluded.full_at - use_key_tokens.at);
end
$$;

comment on function pgwake.use_key_tokens is
  'Internal: takes a token for each job that was started from its concurrency key''s bucket.';
revoke all on function pgwake.use_key_tokens from public;

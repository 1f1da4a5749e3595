-- How many jobs a claim may take of a queue that has max_running or a rate limit: at most
-- count. Internal, for claim_rows.
--
-- Takes the queue's advisory lock, to the end of the transaction, so that such claims
-- come one after the other; not had: none, look again at once. Counts what runs with a
-- later snapshot, so it sees every claim before; therefore not under repeatable read:
-- raises PW003. at comes back as the server's clock after that: claims stamped by it are
-- in the order of the lock, and after the ends that made their room.
--
-- Of a rate the bucket fills by rate_limit tokens a second up to rate_burst (default a
-- second's worth, at least 1). Over any t seconds at most rate_burst + rate_limit * t
-- jobs have started, by started_at. A clock that was put back has filled nothing, and
-- fills from now on. tokens: what there was, null without a rate. Who claims n jobs leaves
-- tokens - n.
--
-- next_at: when to look again, should count be taken: at the next token. Null where
-- nothing runs until a job ends, which wakes the queue. Rides jobs_lease_idx.
create or replace function pgwake.limit_claim(
  queue text,
  inout count int,
  max_running int,
  rate_limit double precision,
  rate_burst int,
  inout at timestamptz,
  out tokens double precision,
  out next_at timestamptz
)
returns record
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
declare
  v_burst double precision := coalesce(limit_claim.rate_burst, greatest(1, ceil(limit_claim.rate_limit)));
  v_room int;
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    perform pgwake.raise_invalid(
      'a queue with limits needs transactions that are read committed', 'Claim in a transaction of that level.');
  end if;
  if not pg_try_advisory_xact_lock(1885828975, hashtext(limit_claim.queue)) then
    limit_claim.count := 0;
    next_at := limit_claim.at;
    return;
  end if;

  if limit_claim.max_running is not null then
    select greatest(limit_claim.max_running - pg_catalog.count(*), 0) into v_room
    from (
      select from pgwake.jobs_live as j
      where j.queue = limit_claim.queue and j.status = 'running'
      limit limit_claim.max_running
    ) as r;
    limit_claim.count := least(limit_claim.count, v_room);
  end if;

  limit_claim.at := clock_timestamp() + (limit_claim.at - now());
  if limit_claim.rate_limit is not null then
    update pgwake.rate_buckets as b
    set filled_at = limit_claim.at
    where b.queue = limit_claim.queue and b.filled_at > limit_claim.at;
    select b.tokens + limit_claim.rate_limit * extract(epoch from limit_claim.at - b.filled_at)
    into limit_claim.tokens
    from pgwake.rate_buckets as b where b.queue = limit_claim.queue;
    limit_claim.tokens := least(v_burst, coalesce(limit_claim.tokens, v_burst));
    limit_claim.count := least(limit_claim.count, floor(limit_claim.tokens + 1e-9));
    if limit_claim.count is distinct from v_room then
      next_at := limit_claim.at + interval '1 microsecond'
        + interval '1 second' * ((1 - (limit_claim.tokens - limit_claim.count)) / limit_claim.rate_limit);
    end if;
  end if;
end
$$;

comment on function pgwake.limit_claim is
  'Internal: how many jobs a claim may take of a queue with limits.';
revoke all on function pgwake.limit_claim from public;

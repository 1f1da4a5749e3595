-- The job of some kinds that has become due last in a queue: its id; null if none has in
-- the last ten seconds. Internal, for claim_rows. Suspects do not count.
--
-- Steps through the bands in use, each from its newest due job backwards: so call it when
-- few others are due. No further than ten seconds, for what an old snapshot pins. Rides
-- jobs_claim_idx.
create or replace function pgwake.newest_left_out(queue text, kinds text[], at timestamptz)
returns bigint
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
begin
  return (
    select newest.id
    from pgwake.live_bands(newest_left_out.queue, 302) as b(band)
    cross join lateral (
      select j.id, j.run_at
      from pgwake.jobs_live as j
      where j.queue = newest_left_out.queue and j.status = 'pending'
        and least(j.crash_count, 2) * 201 - j.priority = b.band
        and j.run_at > newest_left_out.at - interval '10 seconds' and j.run_at <= newest_left_out.at
        and j.kind = any (newest_left_out.kinds)
      order by j.run_at desc, j.id desc
      limit 1
    ) as newest
    order by newest.run_at desc, newest.id desc
    limit 1
  );
end
$$;

comment on function pgwake.newest_left_out is
  'Internal: the job of some kinds that has become due last.';
revoke all on function pgwake.newest_left_out from public;

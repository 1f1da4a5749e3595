-- The lanes between two of a queue that have something dead in them, as places for the
-- cursor of claim_batch. Each starts one second ago, since nobody sees where the dead
-- ones end, and a job whose transaction is still open must not be passed over.
--
-- Looks at each lane: up to 402 looks, for when a look at them all has been slow. A look
-- at an empty one costs up to 50 (see claim_cost). Rides jobs_claim_idx.
create or replace function pgwake.dead_lanes(queue text, above int, below int)
returns jsonb
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
declare
  v_places jsonb := '{}';
  v_now timestamptz := pgwake.now();
  v_cost bigint;
begin
  for v_lane in dead_lanes.above + 1 .. dead_lanes.below - 1 loop
    v_cost := pgwake.claim_cost();
    perform from pgwake.jobs_live as j
    where j.queue = dead_lanes.queue and j.status = 'pending'
      and least(j.crash_count, 2) * 201 - j.priority = v_lane and j.run_at <= v_now
    order by j.run_at
    limit 1;
    if pgwake.claim_cost() - v_cost > 100 then
      v_places := v_places || jsonb_build_object(v_lane, jsonb_build_array(v_now - interval '1 second', 0));
    end if;
  end loop;
  return v_places;
end
$$;

comment on function pgwake.dead_lanes is
  'Internal: the lanes of a queue that are full of dead entries.';
revoke all on function pgwake.dead_lanes from public;

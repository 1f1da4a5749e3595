-- The priority bands between two of a queue that have something dead in them, as resume
-- points for the cursor of claim_rows. Each starts one second ago, since nobody sees
-- where the dead ones end, and a job whose transaction is still open must not be passed
-- over.
--
-- Looks at each band: up to 402 looks, for when a look at them all has been slow. A
-- look at an empty one costs up to 50 (see claim_cost). Rides jobs_claim_idx.
create or replace function pgwake.dead_bands(queue text, above int, below int)
returns jsonb
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
declare
  v_resume_points jsonb := '{}';
  v_now timestamptz := pgwake.now();
  v_cost bigint;
begin
  for v_band in dead_bands.above + 1 .. dead_bands.below - 1 loop
    v_cost := pgwake.claim_cost();
    perform from pgwake.jobs_live as j
    where j.queue = dead_bands.queue and j.status = 'pending'
      and least(j.crash_count, 2) * 201 - j.priority = v_band and j.run_at <= v_now
    order by j.run_at
    limit 1;
    if pgwake.claim_cost() - v_cost > 100 then
      v_resume_points := v_resume_points
        || jsonb_build_object(v_band, jsonb_build_array(v_now - interval '1 second', 0));
    end if;
  end loop;
  return v_resume_points;
end
$$;

comment on function pgwake.dead_bands is
  'Internal: the priority bands of a queue that are full of dead entries.';
revoke all on function pgwake.dead_bands from public;

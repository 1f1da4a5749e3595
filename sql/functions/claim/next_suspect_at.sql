-- When the next suspect of these queues (a pending job with two crashes or more) is
-- due, or was; null if there is none. A supervisor starts a quarantine for them. Rides
-- jobs_claim_idx.
create or replace function pgwake.next_suspect_at(queues text[])
returns timestamptz
language plpgsql stable
security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
begin
  return (
    select min(j.run_at)
    from pgwake.jobs_live as j
    where j.queue = any (next_suspect_at.queues) and j.status = 'pending'
      and least(j.crash_count, 2) * 201 - j.priority between 302 and 502
  );
end
$$;

comment on function pgwake.next_suspect_at is
  'When the next job with two crashes or more is due; null if there is none.';
revoke all on function pgwake.next_suspect_at from public;

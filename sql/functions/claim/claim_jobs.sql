-- Claims up to count due jobs, a row each, in claim order; no row if there is none or
-- the queue is paused.
--
-- For consumers in any language. Each job must be ended by complete_job, fail_job,
-- snooze_job or release_jobs with its id and lease_id before lease_expires_at, or the
-- lease kept up by extend_leases. Arguments as in claim_batch; jobs with two crashes or
-- more are left to claim_next_job. Raises PW003, and PW006 in a copy: see adopt.
--
-- The cursor of claim_batch, while there is one, is kept in the session setting
-- pgwake.cursor; a pool that resets its sessions loses it, and what it is good for.
create or replace function pgwake.claim_jobs(
  queue text, count int, worker text default null, lease interval default null
)
returns setof pgwake.claimed_job
language plpgsql volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_cursors jsonb := pgwake.session_cursors();
  v_cursor jsonb;
  v_jobs pgwake.claimed_job[];
begin
  select b.jobs, b.cursor into v_jobs, v_cursor
  from pgwake.claim_batch(
    claim_jobs.queue, claim_jobs.count, claim_jobs.worker, claim_jobs.lease,
    v_cursors -> claim_jobs.queue) as b;
  if v_cursor is distinct from v_cursors -> claim_jobs.queue then
    v_cursors := coalesce(v_cursors, '{}') - claim_jobs.queue;
    if v_cursor is not null then
      v_cursors := v_cursors || jsonb_build_object(claim_jobs.queue, v_cursor);
    end if;
    perform set_config('pgwake.cursor', nullif(v_cursors::text, '{}'), false);
  end if;
  return query select * from unnest(v_jobs);
end
$$;

comment on function pgwake.claim_jobs is
  'Claims up to count due jobs of a queue, a row each.';
revoke all on function pgwake.claim_jobs from public;

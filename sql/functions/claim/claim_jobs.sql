-- Claims up to count due jobs, a row each, in claim order; no row if there is none or
-- the queue is paused.
--
-- For consumers in any language. Each job must be ended by complete_job, fail_job,
-- snooze_job or release_jobs with its id and lease_id before lease_expires_at, or the
-- lease kept up by extend_leases. Arguments as in claim_rows; jobs with two crashes or
-- more are left to claim_next_job. Raises PW003, and PW006 in a copy: see adopt.
--
-- The cursor of claim_rows, while there is one, is kept in the session setting
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
  v_row record;
begin
  for v_row in
    select c.id, c.lease_id, claim_jobs.queue, c.kind, c.payload, c.attempt, c.max_attempts, c.lease_expires_at,
      c.created_at, c.metadata, c.options, c.next_cursor
    from pgwake.claim_rows(
      claim_jobs.queue, claim_jobs.count, claim_jobs.worker, claim_jobs.lease, v_cursors -> claim_jobs.queue) as c
  loop
    if v_row.id is not null then
      return next row(
        v_row.id, v_row.lease_id, v_row.queue, v_row.kind, v_row.payload, v_row.attempt, v_row.max_attempts,
        v_row.lease_expires_at, v_row.created_at, v_row.metadata, v_row.options)::pgwake.claimed_job;
    elsif v_row.next_cursor is distinct from v_cursors -> claim_jobs.queue then
      v_cursors := coalesce(v_cursors, '{}') - claim_jobs.queue;
      if v_row.next_cursor is not null then
        v_cursors := v_cursors || jsonb_build_object(claim_jobs.queue, v_row.next_cursor);
      end if;
      perform set_config('pgwake.cursor', nullif(v_cursors::text, '{}'), false);
    end if;
  end loop;
end
$$;

comment on function pgwake.claim_jobs is
  'Claims up to count due jobs of a queue, a row each.';
revoke all on function pgwake.claim_jobs from public;

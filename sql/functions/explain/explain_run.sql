-- For explain_job: who runs a running job, until when that holds, how far it is, and
-- who wants it cancelled, a line each. Rides workers_pkey.
create or replace function pgwake.explain_run(job pgwake.jobs_live)
returns text[]
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  v_worker text := pgwake.say_name(job.claimed_by);
  v_seen_at timestamptz := (select w.seen_at from pgwake.workers as w where w.name = job.claimed_by);
  v_lines text[];
begin
  v_lines := array[
    format('It was claimed by %s at %s, for attempt %s.', v_worker, pgwake.say_time(job.started_at), job.attempt),
    case
      when v_seen_at is null then 'That worker does not report itself.'
      when pgwake.is_live(v_seen_at) then format('That worker is live, seen at %s.', pgwake.say_time(v_seen_at))
      else format('That worker may be dead: it was last seen at %s.', pgwake.say_time(v_seen_at))
    end,
    case
      when job.lease_expires_at > pgwake.now() then
        format('Its lease lasts until %s, if it is not renewed.', pgwake.say_time(job.lease_expires_at))
      else format(
        'Its lease ran out at %s, so its worker is dead or cut off: the sweep gives the job back. '
        'Every worker sweeps each second; without one, select pgwake.maintain(''sweep'').',
        pgwake.say_time(job.lease_expires_at))
    end];
  if job.progress is not null then
    v_lines := v_lines || format(
      'It reports: %s', regexp_replace(left(job.progress::text, 200), '[[:cntrl:]]', '?', 'g'));
  end if;
  if job.cancel_requested_at is not null then
    v_lines := v_lines || format(
      'It is to be cancelled since %s; %s hears of it at the latest when it renews the lease.',
      pgwake.say_time(job.cancel_requested_at), v_worker);
  end if;
  return v_lines;
end
$$;

comment on function pgwake.explain_run is
  'Internal: for explain_job, who runs a job.';
revoke all on function pgwake.explain_run from public;

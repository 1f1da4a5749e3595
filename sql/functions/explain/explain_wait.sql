-- For explain_job: why a waiting or pending job does not run, a line each; what it waits
-- for first. Never empty.
create or replace function pgwake.explain_wait(job pgwake.jobs_live)
returns text[]
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  v_now timestamptz := pgwake.now();
  v_paused_until timestamptz := (select q.paused_until from pgwake.queues as q where q.name = job.queue);
  v_kind pgwake.kinds;
  v_lines text[] := '{}';
begin
  select k.* into v_kind from pgwake.kinds as k where k.name = job.kind;
  if (select a.is_copy from pgwake.get_adoption() as a) then
    v_lines := v_lines || 'This database is a copy, in which nothing is claimed until somebody calls '
      'pgwake.adopt().'::text;
  end if;
  if job.run_at > v_now then
    v_lines := v_lines || coalesce(
      (
        select format('It sleeps (step %s) until %s.', pgwake.say_name(s.name), pgwake.say_time(s.until))
        from pgwake.steps as s
        where s.job_id = job.id and s.kind = 'sleep' and s.until = job.run_at and job.has_steps
        limit 1
      ),
      format('It is not due until %s.', pgwake.say_time(job.run_at)));
  end if;
  if job.expires_at is not null and job.attempt = 0 then
    v_lines := v_lines || case
      when job.expires_at > v_now then
        format('It is cancelled if it has not been started by %s (expires_at).', pgwake.say_time(job.expires_at))
      else format(
        'It expired at %s, so the sweep cancels it. A worker sweeps each second; without one, '
        'select pgwake.maintain(''sweep'').', pgwake.say_time(job.expires_at))
    end;
  end if;
  if v_paused_until > v_now then
    v_lines := v_lines || case v_paused_until
      when 'infinity' then format(
        'Its queue is paused until somebody calls pgwake.resume_queue(%L).', job.queue)
      else format('Its queue is paused until %s.', pgwake.say_time(v_paused_until))
    end;
  end if;

  if job.has_parents_left then
    v_lines := v_lines || coalesce(pgwake.explain_awaited(job.id), pgwake.explain_parents(job));
  elsif job.status = 'waiting' then
    v_lines := v_lines || pgwake.explain_key(job);
  else
    v_lines := v_lines || pgwake.explain_limits(job.queue) || pgwake.explain_kind(job.kind);
  end if;

  if job.crash_count >= 2 then
    v_lines := v_lines || format(
      'It has crashed %s times, so it is a suspect and runs alone: a worker''s supervisor starts a '
      'quarantine for it; claim_next_job() takes it too.', job.crash_count);
  elsif job.crash_count = 1 then
    v_lines := v_lines || 'It has crashed once: a claim takes only one such job.'::text;
  end if;
  v_lines := v_lines || pgwake.explain_workers(job.queue, job.kind);
  if job.bounce_count > 0 then
    v_lines := v_lines || format(
      'It was given back unfinished %s: by workers that don''t know its kind, or that shut down.',
      case job.bounce_count when 1 then 'once' else job.bounce_count || ' times' end);
  end if;
  if v_kind.bounce_count > 0 then
    v_lines := v_lines || format(
      'Workers that don''t know kind %s have given back %s of its jobs, the last at %s.',
      pgwake.say_name(job.kind), v_kind.bounce_count, pgwake.say_time(v_kind.bounced_at));
  end if;
  if job.status = 'pending' and job.run_at <= v_now then
    v_lines := v_lines || pgwake.explain_position(job);
  end if;
  return v_lines;
end
$$;

comment on function pgwake.explain_wait is
  'Internal: for explain_job, why a job does not run.';
revoke all on function pgwake.explain_wait from public;

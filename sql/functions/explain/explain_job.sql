-- Says in words how a job stands, why it is not running or who runs it, what policy
-- holds for it and who has set that, and what became of each attempt: some lines of
-- text, for people. Its wording may change; scripts read get_job.
--
-- Workers are those that report themselves (see report_worker). Counts stop at 10,000,
-- so it costs the same in a long queue as in a short one. Reads only, so it answers on
-- a standby too. Raises PW001 no such job.
--
-- Rides the primary keys of the leaves and of unique_periods, jobs_claim_idx,
-- jobs_key_idx and jobs_lease_idx.
create or replace function pgwake.explain_job(job_id bigint)
returns text
language plpgsql stable
security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
  v_job pgwake.jobs_live;
  v_lines text[];
  v_attempts text[];
  v_until timestamptz;
begin
  select j.* into v_job from pgwake.jobs_live as j where j.id = explain_job.job_id;
  if not found then
    select j.* into v_job from pgwake.jobs_failed as j where j.id = explain_job.job_id;
  end if;
  if not found then
    select j.* into v_job from pgwake.jobs_finished as j where j.id = explain_job.job_id;
  end if;
  if not found then
    perform pgwake.raise_outcome(explain_job.job_id, 'no_such_job');
  end if;

  v_lines := array[format(
    'Job %s is %s. Kind %s, queue %s, priority %s, created %s.', v_job.id, v_job.status,
    pgwake.say_name(v_job.kind), pgwake.say_name(v_job.queue), v_job.priority,
    pgwake.say_time(v_job.created_at))];
  v_lines := v_lines || case
    when v_job.status in ('waiting', 'pending') then pgwake.explain_wait(v_job)
    when v_job.status = 'running' then pgwake.explain_run(v_job)
    else pgwake.explain_end(v_job)
  end;
  if v_job.is_payload_dropped then
    v_lines := v_lines || 'Its payload was dropped when it completed.'::text;
  end if;
  select p.until into v_until
  from pgwake.unique_periods as p
  where p.kind = v_job.kind and p.unique_key = v_job.unique_key and p.job_id = v_job.id and p.until > pgwake.now();
  if found then
    v_lines := v_lines || format('Its unique key stays taken until %s (unique_until), whatever becomes of it.',
      pgwake.say_time(v_until));
  end if;
  if v_job.status not in ('completed', 'cancelled') then
    v_lines := v_lines || format(
      'Policy: attempt %s, crash %s; %s.', v_job.attempt, v_job.crash_count,
      array_to_string(pgwake.explain_policy(v_job), ', '));
  end if;
  v_attempts := pgwake.explain_attempts(v_job.errors);
  if cardinality(v_attempts) > 0 then
    v_lines := v_lines || 'Failed attempts:'::text
      || array(select '  ' || a.line from unnest(v_attempts) with ordinality as a(line, place) order by a.place);
  end if;
  return array_to_string(v_lines, e'\n');
end
$$;

comment on function pgwake.explain_job is
  'Says in words why a job is not running, and what became of each attempt.';
revoke all on function pgwake.explain_job from public;

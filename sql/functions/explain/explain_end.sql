-- For explain_job: how an ended job ended, and what can be done about it, a line each.
create or replace function pgwake.explain_end(job pgwake.jobs_live)
returns text[]
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select case job.status
    when 'completed' then array[
      format('It completed at %s', pgwake.say_time(job.finished_at))
      || coalesce(', run by ' || pgwake.say_name(job.claimed_by), '')
      || coalesce(' in ' || round(extract(epoch from job.finished_at - job.started_at)::numeric * 1000, 1) || ' ms', '')
      || format(', attempt %s.', job.attempt)]
    when 'failed' then array[
      format('It failed for good at %s. Attempts: %s, crashes: %s.',
        pgwake.say_time(job.finished_at), job.attempt, job.crash_count),
      format('To run it again: select pgwake.retry_job(%s).', job.id)]
    when 'cancelled' then array[
      format('It was cancelled at %s', pgwake.say_time(job.finished_at))
      || coalesce(', asked for at ' || pgwake.say_time(job.cancel_requested_at), '')
      || case when job.started_at is null then ', before it was run' else '' end
      || case when job.errors -> -1 ->> 'reason' = 'expired' then ': it had expired' else '' end || '.',
      format('To run it all the same: select pgwake.retry_job(%s).', job.id)]
  end
$$;

comment on function pgwake.explain_end is
  'Internal: for explain_job, how a job ended.';
revoke all on function pgwake.explain_end from public;

-- Live jobs for people: each with its state, and who runs it since when.
create or replace function pgwake.say_jobs(job_ids bigint[])
returns text
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select string_agg(
    format('job %s', j.id) || case j.status
      when 'running' then
        format(' (running on %s since %s)', pgwake.say_name(j.claimed_by), pgwake.say_time(j.started_at))
      else format(' (%s, due %s)', j.status, pgwake.say_time(j.run_at))
    end, ', ' order by j.id)
  from pgwake.jobs_live as j
  where j.id = any (say_jobs.job_ids)
$$;

comment on function pgwake.say_jobs is 'Internal: live jobs for people.';
revoke all on function pgwake.say_jobs from public;

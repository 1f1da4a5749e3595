-- When the next pending job of a queue is due, or was: the least run_at; null if
-- nothing is pending.
--
-- How long a consumer may sleep. Jobs with two crashes or more are left out, as in a
-- claim: see next_suspect_at. Steps through the priorities in use; rides jobs_claim_idx
-- and jobs_crashed_idx.
create or replace function pgwake.next_run_at(queue text default 'default')
returns timestamptz
language plpgsql stable
set search_path = ''
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
declare
  v_priority smallint := 32767;
  v_run_at timestamptz;
  v_next timestamptz;
begin
  loop
    select j.priority, j.run_at into v_priority, v_run_at
    from pgwake.jobs_live as j
    where j.queue = next_run_at.queue and j.status = 'pending' and j.crash_count = 0
      and j.priority < v_priority
    order by j.priority desc, j.run_at
    limit 1;
    exit when not found;
    v_next := least(v_next, v_run_at);
  end loop;
  select min(j.run_at) into v_run_at
  from pgwake.jobs_live as j
  where j.queue = next_run_at.queue and j.status = 'pending' and j.crash_count > 0 and j.crash_count = 1;
  return least(v_next, v_run_at);
end
$$;

comment on function pgwake.next_run_at is
  'When the next pending job of a queue is due; null if nothing is pending.';
revoke all on function pgwake.next_run_at from public;

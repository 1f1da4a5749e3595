-- Removes ended jobs past their retention. Returns how many rows it deleted, plus one
-- for each leaf it truncated.
--
-- First the ring: a leaf whose newest row is past the longest retention is truncated.
-- The lock comes before the look, as statements of their own, so the look sees whatever
-- was committed before the lock: hence read committed only (PW003). The leaf in use and
-- the next one are never tried, any other at most once an hour, for 100 ms. Then single
-- rows: at most max_rows (PW003 if negative) from each leaf, for shorter retentions and
-- for leaves in use. A row that may not be deleted is left: see delete_ended_jobs.
-- Keeps installation.width long enough that the ring can hold the longest retention: 28
-- leaves of it. Rides jobs_finished_N_finished_at_idx and jobs_failed_finished_at_idx.
create or replace function pgwake.apply_retention(max_rows int default 5000)
returns int
language plpgsql volatile
security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
declare
  v_now timestamptz := pgwake.now();
  v_keep interval;
  v_shortest interval;
  v_shortest_failed interval;
  v_current smallint := pgwake.finished_slot(v_now);
  v_slot smallint;
  v_lock_timeout text := current_setting('lock_timeout');
  v_look text;
  v_is_past boolean;
  v_count int := 0;
  v_tids tid[];
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    perform pgwake.raise_invalid(
      format('transaction isolation is %s', current_setting('transaction_isolation')),
      'Run retention in read committed, or it would not see the newest rows of a leaf.');
  end if;
  if apply_retention.max_rows < 0 then
    perform pgwake.raise_invalid(
      format('max_rows is %s', apply_retention.max_rows), 'Use 0 or more, or null for all rows.');
  end if;
  select greatest(max(q.retention_completed), interval '7 days'),
    least(min(q.retention_completed), interval '7 days'),
    least(min(q.retention_failed), interval '90 days')
  into v_keep, v_shortest, v_shortest_failed
  from pgwake.queues as q;

  update pgwake.installation as i
  set width = least(ceil(extract(epoch from v_keep) / 86400 / 28), 366)
  where i.width < least(ceil(extract(epoch from v_keep) / 86400 / 28), 366);

  for v_slot in
    select r.slot
    from pgwake.ring_slots as r
    where r.slot not in (v_current, (v_current + 1) % 32) and r.tried_at < v_now - interval '1 hour'
    order by r.slot
  loop
    update pgwake.ring_slots as r set tried_at = v_now where r.slot = v_slot;
    -- not max(finished_at), which would read the leaf from end to end
    v_look := format(
      'select exists (select from pgwake.jobs_finished_%1$s) and not exists ('
      'select from pgwake.jobs_finished_%1$s where finished_at >= $1)', v_slot);
    execute v_look into v_is_past using v_now - v_keep;
    continue when not v_is_past;
    begin
      perform set_config('lock_timeout', '100ms', true);
      execute format('lock table pgwake.jobs_finished_%s in access exclusive mode', v_slot);
      execute v_look into v_is_past using v_now - v_keep;
      if v_is_past then
        execute format('truncate pgwake.jobs_finished_%s', v_slot);
        v_count := v_count + 1;
      end if;
      perform set_config('lock_timeout', v_lock_timeout, true);
    exception when lock_not_available or feature_not_supported then
      null;  -- a reader is in it, or a foreign key refers to it; the setting is rolled back with the block
    end;
  end loop;

  for v_slot in select r.slot from pgwake.ring_slots as r order by r.slot loop
    execute format(
      'select array(select j.ctid from pgwake.jobs_finished_%s as j left join pgwake.queues as q on q.name = j.queue '
      'where j.finished_at < $1 - $2 and j.finished_at < $1 - coalesce(q.retention_completed, ''7 days'') '
      'limit $3 for update of j skip locked)', v_slot)
    into v_tids using v_now, v_shortest, apply_retention.max_rows;
    v_count := v_count + pgwake.delete_ended_jobs(format('pgwake.jobs_finished_%s', v_slot), v_tids);
  end loop;

  v_tids := array(
    select j.ctid
    from pgwake.jobs_failed as j
    left join pgwake.queues as q on q.name = j.queue
    where j.finished_at < v_now - v_shortest_failed
      and j.finished_at < v_now - coalesce(q.retention_failed, interval '90 days')
    order by j.finished_at
    limit apply_retention.max_rows
    for update of j skip locked);
  return v_count + pgwake.delete_ended_jobs('pgwake.jobs_failed', v_tids);
end
$$;

comment on function pgwake.apply_retention is
  'Removes ended jobs past their retention; returns how many rows and leaves.';
revoke all on function pgwake.apply_retention from public;

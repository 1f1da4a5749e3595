-- Cancels jobs that have not been started by their expires_at, with the reason expired,
-- and counts them by kind, for diagnose: a part of the sweep. Claims step over such jobs until then. Internal.
--
-- At most max_jobs a call, those first that expired first. Returns how many, by queue
-- and kind. A job that can't be moved, since a user's hook raises, is left, with a
-- warning. Skips locked rows. Rides jobs_expires_idx, where no other jobs are.
create or replace function pgwake.cancel_expired(max_jobs int default 2000)
returns table (queue text, kind text, job_count bigint)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set enable_sort = off
set jit = off
as $$
#variable_conflict use_column
declare
  v_all record;
  v_ids bigint[];  -- to be ended together
  v_left_out bigint[] := '{}';
  v_from int := 1;
  v_to int;
begin
  select array_agg(e.id) as ids, array_agg(e.queue) as queues, array_agg(e.kind) as kinds,
    array_agg(format('not started by %s', e.expires_at)) as messages
  into v_all
  from (
    select j.id, j.queue, j.kind, j.expires_at
    from pgwake.jobs_live as j
    where j.expires_at <= pgwake.now() and j.attempt = 0
    order by j.expires_at
    limit cancel_expired.max_jobs
    for update skip locked
  ) as e;
  if v_all.ids is null then
    return;
  end if;

  -- All at once; if that is refused, one by one.
  v_to := cardinality(v_all.ids);
  while v_from <= cardinality(v_all.ids) loop
    v_ids := v_all.ids[v_from:v_to];
    begin
      perform pgwake.end_jobs(
        v_ids, array_fill('cancelled'::text, array[cardinality(v_ids)]),
        array_fill('expired'::text, array[cardinality(v_ids)]), v_all.messages[v_from:v_to], null);
      set constraints all immediate;
      set constraints all deferred;
      v_from := v_to + 1;
    exception when others then
      if v_from = v_to then
        raise warning 'job % has expired and can not be cancelled: %', v_ids[1], sqlerrm;
        v_left_out := v_left_out || v_ids;
        v_from := v_from + 1;
      end if;
    end;
    v_to := v_from;
  end loop;

  insert into pgwake.kinds as k (name, expired_count, expired_at)
  select e.kind, count(*), pgwake.now()
  from unnest(v_all.ids, v_all.kinds) as e(id, kind)
  where e.id <> all (v_left_out)
  group by e.kind
  order by e.kind
  on conflict (name) do update
  set expired_at = excluded.expired_at,
    expired_count = excluded.expired_count
      + case when k.expired_at > excluded.expired_at - interval '1 hour' then k.expired_count else 0 end;

  return query
  select e.queue, e.kind, count(*)
  from unnest(v_all.ids, v_all.queues, v_all.kinds) as e(id, queue, kind)
  where e.id <> all (v_left_out)
  group by e.queue, e.kind;
end
$$;

comment on function pgwake.cancel_expired is
  'Internal: cancels jobs that have not been started by their expires_at.';
revoke all on function pgwake.cancel_expired from public;

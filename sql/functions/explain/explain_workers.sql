-- For explain_job: whether a worker is there that would run a job of this kind from
-- this queue; an empty array if one is. Of those that report themselves: see
-- report_worker.
create or replace function pgwake.explain_workers(queue text, kind text)
returns text[]
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  v_queue text := pgwake.say_name(explain_workers.queue);
  v_kind text := pgwake.say_name(explain_workers.kind);
  v_live_count bigint;
  v_queue_count bigint;
  v_kind_count bigint;
  v_live text;
  v_here text;
  v_elsewhere text;
begin
  select
    count(*), count(*) filter (where w.is_here), count(*) filter (where w.is_here and w.is_able),
    string_agg(w.said || ' on ' || w.queues_said, ', ' order by w.name) filter (where w.place <= 5),
    string_agg(w.said, ', ' order by w.name) filter (where w.is_here and w.place_here <= 5),
    string_agg(w.said || ' on ' || w.queues_said, ', ' order by w.name) filter (where w.is_able and w.place_able <= 5)
  into v_live_count, v_queue_count, v_kind_count, v_live, v_here, v_elsewhere
  from (
    select l.*, pgwake.say_name(l.name) as said, pgwake.say_name(array_to_string(l.queues, ', ')) as queues_said,
      row_number() over (order by l.name) as place,
      row_number() over (partition by l.is_here order by l.name) as place_here,
      row_number() over (partition by l.is_able order by l.name) as place_able
    from (
      select k.name, k.queues, explain_workers.queue = any (k.queues) as is_here,
        explain_workers.kind = any (k.kinds) as is_able
      from pgwake.workers as k
      where pgwake.is_live(k.seen_at)
    ) as l
  ) as w;

  if v_live_count = 0 then
    return array['No worker is live: none has reported itself within 30 seconds. '
      'Consumers that call the SQL functions themselves need not.'];
  elsif v_queue_count = 0 then
    return array[format('No live worker works on queue %s. Live are: %s%s.',
      v_queue, v_live, case when v_live_count > 5 then format(' and %s more', v_live_count - 5) else '' end)];
  elsif v_kind_count = 0 then
    return array[format('No live worker of queue %s handles kind %s. On the queue are: %s%s.%s',
      v_queue, v_kind, v_here,
      case when v_queue_count > 5 then format(' and %s more', v_queue_count - 5) else '' end,
      coalesce(' It is handled by ' || v_elsewhere || '.', ''))];
  end if;
  return '{}';
end
$$;

comment on function pgwake.explain_workers is
  'Internal: for explain_job, whether a worker is there for a queue and a kind.';
revoke all on function pgwake.explain_workers from public;

-- What happens by itself. Statement-level: one call an INSERT or COPY, however many
-- rows.

create or replace function pgwake.after_insert_jobs()
returns trigger
language plpgsql
set search_path = ''
as $$
declare
  v_queue text;
  v_audience pgwake.audience := pgwake.get_audience();
begin
  for v_queue in
    insert into pgwake.tallies (queue, at, enqueued)
    select i.queue, pgwake.now(), count(*) from inserted as i group by i.queue
    returning queue
  loop
    perform pgwake.ring(v_queue);
  end loop;

  if v_audience.is_watched or cardinality(v_audience.exceptions) > 0 then
    perform pgwake.announce(array_agg(pgwake.status_event(i.id, i.queue, i.kind, null, i.status)))
    from inserted as i
    where pgwake.is_announced(i.queue, v_audience);
  end if;
  return null;
end
$$;

comment on function pgwake.after_insert_jobs is
  'Tallies, wakes and announces after an INSERT into pgwake.jobs.';
revoke all on function pgwake.after_insert_jobs from public;

-- A resumed queue or a changed policy may make jobs runnable.
create or replace function pgwake.after_change_queues()
returns trigger
language plpgsql
set search_path = ''
as $$
begin
  lock table pgwake.jobs_live in row exclusive mode;  -- seen by open_writers()
  perform pgwake.ring(coalesce(new.name, old.name));
  return null;
end
$$;

comment on function pgwake.after_change_queues is
  'Wakes a queue whose policy has changed.';
revoke all on function pgwake.after_change_queues from public;

-- Inside a block: "create or replace trigger" would lock out writers on every run of
-- the installer.
do $triggers$
begin
  if exists (
    select from pg_trigger as t
    where t.tgrelid = 'pgwake.jobs'::regclass and t.tgname = 'jobs_after_insert'
  ) then
    return;
  end if;

  create trigger jobs_after_insert
    after insert on pgwake.jobs
    referencing new table as inserted
    for each statement execute function pgwake.after_insert_jobs();

  create trigger queues_after_change
    after insert or update or delete on pgwake.queues
    for each row execute function pgwake.after_change_queues();
end
$triggers$;

-- From schema 1: all tables can be published, workers report their slots, children are
-- found that nobody would look at, the one text index of the server's collation gets the
-- collation "C", one index tells which queues' jobs concern somebody when they end,
-- queues can drop the payloads of completed jobs, a claimed job stays on its page, and an
-- owner's UPDATE is compared with what was before.
do $migration$
begin
  if current_setting('pgwake.installed_version')::int <> 1 then
    return;
  end if;
  perform pgwake.lock_tables('pgwake.jobs', 'pgwake.queues', 'pgwake.rechecks', 'pgwake.counts', 'pgwake.workers');

  alter table pgwake.rechecks replica identity full;
  alter table pgwake.counts replica identity full;
  alter table pgwake.workers add column slots int;
  create index jobs_children_idx on pgwake.jobs_live (id) where has_parents_left;
  drop index pgwake.queues_status_events_idx;
  create index queues_status_events_idx on pgwake.queues (status_events collate "C", name)
    where status_events <> 'watched';
  drop index pgwake.queues_max_running_idx;
  drop index pgwake.queues_webhook_idx;
  alter table pgwake.queues add column drop_payloads boolean not null default false;
  create index queues_ends_idx on pgwake.queues (name)
    where max_running is not null or webhook is not null or status_events <> 'watched' or drop_payloads;
  alter table pgwake.jobs add column is_payload_dropped boolean;
  alter table pgwake.jobs_live set (fillfactor = 40);
  drop trigger jobs_before_insert on pgwake.jobs;
  create trigger jobs_before_insert
    before insert on pgwake.jobs
    for each row when (new.concurrency_key is not null or new.depends_on is not null)
    execute function pgwake.before_insert_jobs();
  drop trigger jobs_after_update_to on pgwake.jobs;
  create trigger jobs_after_update_to
    after update on pgwake.jobs
    referencing old table as replaced new table as changed
    for each statement execute function pgwake.after_change_jobs('1');
end
$migration$;

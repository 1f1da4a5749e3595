-- From schema 1: all tables can be published, workers report their slots, and the one
-- text index of the server's collation gets the collation "C".
do $migration$
begin
  if current_setting('pgwake.installed_version')::int <> 1 then
    return;
  end if;
  perform pgwake.lock_tables('pgwake.queues', 'pgwake.rechecks', 'pgwake.counts', 'pgwake.workers');

  alter table pgwake.rechecks replica identity full;
  alter table pgwake.counts replica identity full;
  alter table pgwake.workers add column slots int;
  drop index pgwake.queues_status_events_idx;
  create index queues_status_events_idx on pgwake.queues (status_events collate "C", name)
    where status_events <> 'watched';
end
$migration$;

-- The payload of a job_status_changed notification; bounded, since queue and kind are.
create or replace function pgwake.status_event(
  id bigint, queue text, kind text, old_status text, new_status text
)
returns text
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select json_build_object(
    'id', status_event.id, 'queue', status_event.queue, 'kind', status_event.kind,
    'old_status', status_event.old_status, 'new_status', status_event.new_status
  )::text
$$;

comment on function pgwake.status_event is
  'Internal: the payload of a job_status_changed notification.';
revoke all on function pgwake.status_event from public;

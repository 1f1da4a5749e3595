-- The queues whose transitions are announced on channel job_status_changed.
create or replace function pgwake.watched_queues()
returns text[]
language plpgsql stable
set search_path = ''
as $$
begin
  return array(select q.name from pgwake.queues as q where q.status_events = 'always');
end
$$;

comment on function pgwake.watched_queues is 'Queues whose status_events are sent.';
revoke all on function pgwake.watched_queues from public;

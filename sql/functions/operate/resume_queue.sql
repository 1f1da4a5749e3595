-- Ends a queue's pause, and wakes who waits for its jobs. Returns whether it was
-- paused. Raises PW003 for a name that no queue can have. Rides queues_pkey.
create or replace function pgwake.resume_queue(queue text default 'default')
returns boolean
language plpgsql volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_paused_until timestamptz;
begin
  if octet_length(resume_queue.queue) between 1 and 128 is not true then
    perform pgwake.raise_invalid(
      format('queue has %s bytes', coalesce(octet_length(resume_queue.queue)::text, 'no')),
      'Name a queue, 1 to 128 bytes.');
  end if;
  select q.paused_until into v_paused_until
  from pgwake.queues as q where q.name = resume_queue.queue
  for update;
  update pgwake.queues as q set paused_until = null
  where q.name = resume_queue.queue and q.paused_until is not null;
  return coalesce(v_paused_until > pgwake.now(), false);
end
$$;

comment on function pgwake.resume_queue is
  'Ends a queue''s pause; returns whether it was paused.';
revoke all on function pgwake.resume_queue from public;

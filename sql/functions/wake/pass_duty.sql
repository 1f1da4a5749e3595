-- Tells who sleeps on a queue to call park(): NOTIFY on channel pgwake_duty at commit.
-- For somebody that was killed on duty, once its sessions have ended. Raises PW003.
create or replace function pgwake.pass_duty(queue text)
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  if coalesce(octet_length(pass_duty.queue), 0) not between 1 and 128 then
    perform pgwake.raise_invalid('queue is no name of a queue', 'Name the queue that is slept on, in 1 to 128 bytes.');
  end if;
  perform pg_notify('pgwake_duty', pass_duty.queue);
end
$$;

comment on function pgwake.pass_duty is
  'Internal: tells who sleeps on a queue that nobody may be on duty.';
revoke all on function pgwake.pass_duty from public;

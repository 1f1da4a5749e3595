-- Gives the queue's bell up, and stays on duty: inserts are silent from now on. For who
-- looks at a busy queue so often that nobody need be woken.
--
-- Returns whether this session had the bell (if not, the server warns).
create or replace function pgwake.mute(queue text default 'default')
returns boolean
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  return pg_advisory_unlock(pgwake.bell_key(mute.queue));
end
$$;

comment on function pgwake.mute is
  'Gives the queue''s bell up, and stays on duty: its inserts are silent.';
revoke all on function pgwake.mute from public;

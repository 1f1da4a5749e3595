-- Sends job_status_changed events at commit, made by status_event() for what
-- is_announced(). Null and empty send nothing.
create or replace function pgwake.announce(events text[])
returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  if cardinality(announce.events) > 0 then
    perform pg_notify('job_status_changed', e.event) from unnest(announce.events) as e(event);
  end if;
end
$$;

comment on function pgwake.announce is 'Internal: sends job_status_changed events at commit.';
revoke all on function pgwake.announce from public;

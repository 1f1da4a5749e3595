-- Who hears of this statement's transitions, on channel job_status_changed: once a
-- statement, for is_announced().
--
-- With pgwake.notify = off nobody hears anything. Rides queues_status_events_idx, which
-- is empty unless queues are set to always or never. Without set clauses, which would
-- cost three microseconds each time: all is qualified, and callers have seqscan off.
create or replace function pgwake.get_audience()
returns pgwake.audience
language plpgsql volatile
as $$
declare
  v_audience pgwake.audience := row(false, '{}'::pg_catalog.text[]);
begin
  if pg_catalog.current_setting('pgwake.notify', true) operator(pg_catalog.=) 'off' then
    return v_audience;
  end if;
  v_audience.is_watched := pgwake.is_watched();
  v_audience.exceptions := array(
    select q.name
    from pgwake.queues as q
    where q.status_events operator(pg_catalog.<>) 'watched'
      and q.status_events collate pg_catalog."C" operator(pg_catalog.=)
        case when v_audience.is_watched then 'never' else 'always' end
  );
  return v_audience;
end
$$;

comment on function pgwake.get_audience is
  'Internal: who hears of status events: all queues'' but the exceptions, or the exceptions''.';
revoke all on function pgwake.get_audience from public;

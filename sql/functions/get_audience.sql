-- Who hears of this statement's transitions, on channel job_status_changed: once a
-- statement, for is_announced().
--
-- Who watches holds the watch lock shared (watch()), so it is watched if the lock can't
-- be had exclusively. Tried and given back in one expression: a time-out between two
-- statements would leave it held. A session's own lock does not stand in its way,
-- therefore watch() leaves a setting too. Of two probes at the same instant one may see
-- the other: then events are sent that nobody hears. 32 sessions that did nothing but
-- probe saw each other 4 times in 1,000; 32 that insert do once in 1,000.
--
-- With pgwake.notify = off nobody hears anything. Rides queues_status_events_idx, which
-- is empty unless queues are set to always or never. Without set clauses, which would
-- cost each INSERT three microseconds: all is qualified, and callers have seqscan off.
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
  v_audience.is_watched :=
    coalesce(pg_catalog.current_setting('pgwake.is_watching', true) operator(pg_catalog.=) 'on', false)
    or not (
      pg_catalog.pg_try_advisory_lock(1885828973, 0) and pg_catalog.pg_advisory_unlock(1885828973, 0));
  v_audience.exceptions := array(
    select q.name
    from pgwake.queues as q
    where q.status_events operator(pg_catalog.<>) 'watched'
      and q.status_events operator(pg_catalog.=) case when v_audience.is_watched then 'never' else 'always' end
  );
  return v_audience;
end
$$;

comment on function pgwake.get_audience is
  'Who hears of status events: all queues'' but the exceptions, or the exceptions''.';
revoke all on function pgwake.get_audience from public;

-- For diagnose: who has kept dead rows of this database from being removed for longer
-- than warn_after (error: fail_after). Where no time can be known, as of another role's
-- session, a standby's feedback or some slots: for more than warn_xids transactions
-- (error: ten times as many).
--
-- old_snapshot          a session with a snapshot or a transaction id
-- prepared_transaction  of two-phase commit; the problem says if it holds locks on jobs
-- replication_slot      whose standby asks for old rows; catalog_xmin keeps no job
-- standby_feedback      a standby with hot_standby_feedback, without a slot
-- hidden_sessions       notice: sessions whose transactions this role may not see
--
-- VACUUM pins nothing. value: seconds, or transactions.
create or replace function pgwake.diagnose_pins(
  warn_after interval default '5 minutes', fail_after interval default '1 hour', warn_xids bigint default 1000000
)
returns setof pgwake.finding
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  v_now timestamptz := clock_timestamp();  -- the server's own, as what it is compared with
  v_database constant oid := (select d.oid from pg_database as d where d.datname = current_database());
  v_has_commit_times constant boolean :=
    current_setting('track_commit_timestamp')::boolean and not pg_is_in_recovery();
begin
  return query
  with pins (check_name, subject, who, since, xids, fix) as (
    select case when a.datid is null then 'standby_feedback' else 'old_snapshot' end, format('session %s', a.pid),
      format('session %s of role %s, application %s%s,', a.pid, coalesce(a.usesysid::regrole::text, '?'),
        pgwake.say_name(a.application_name), ', ' || a.state),
      a.xact_start, greatest(age(a.backend_xid), age(a.backend_xmin)),
      format('select pg_terminate_backend(%s);  -- %s', a.pid, case when a.datid is null
        then 'a standby''s: first end the long query there' else 'its transaction is rolled back' end)
    from pg_stat_get_activity(null) as a
    where (a.datid is null or a.datid = v_database) and num_nonnulls(a.backend_xid, a.backend_xmin) > 0
      and a.pid <> pg_backend_pid() and a.pid not in (select p.pid from pg_stat_progress_vacuum as p)
    union all
    select 'prepared_transaction', p.gid,
      format('the prepared transaction %s of role %I%s', pgwake.say_name(p.gid), p.owner, case when exists (
          select from pg_locks as x
          join pg_locks as l on l.virtualtransaction = x.virtualtransaction and l.pid is null
          where x.transactionid = p.transaction and x.pid is null and l.database = v_database
            and l.relation in ('pgwake.jobs'::regclass, 'pgwake.jobs_live'::regclass)
        ) then ' holds locks on jobs, and' else '' end),
      p.prepared, age(p.transaction),
      format('rollback prepared %L;  -- or commit prepared: who prepared it must say', p.gid)
    from pg_prepared_xacts as p
    where p.database = current_database()
    union all
    select 'replication_slot', s.slot_name, format('the replication slot %s', s.slot_name),
      least(
        (to_jsonb(s) ->> 'inactive_since')::timestamptz,  -- by name: not every version has the column
        case when v_has_commit_times then pg_xact_commit_timestamp(s.xmin) end),
      age(s.xmin),
      case when s.active
        then format('select pg_terminate_backend(%s);  -- first end the long query on its standby', s.active_pid)
        else format('select pg_drop_replication_slot(%L);  -- if who used it won''t come back', s.slot_name) end
    from pg_replication_slots as s
    where s.xmin is not null
  )
  select p.check_name,
    case when p.since < v_now - diagnose_pins.fail_after or p.told_xids > 10 * diagnose_pins.warn_xids then 'error'
      else 'warning' end,
    p.subject,
    format('%s has kept dead rows %s', p.who,
      coalesce('for ' || date_trunc('second', v_now - p.since), format('of %s transactions', p.xids))),
    p.fix, coalesce(extract(epoch from v_now - p.since)::double precision, p.xids)
  from (
    select n.*, x.told_xids, row_number() over (partition by n.check_name order by n.since, n.xids desc) as place
    from pins as n
    -- A slot's time is that of its going idle, if it is known at all.
    cross join lateral (
      select case when n.since is null or n.check_name = 'replication_slot' then n.xids end as told_xids
    ) as x
    where n.since < v_now - diagnose_pins.warn_after or x.told_xids > diagnose_pins.warn_xids
  ) as p
  where p.place <= 10;

  return query
  select 'hidden_sessions', 'notice', current_user::text,
    format('%s sessions are of roles whose transactions %I may not see: they are judged by transaction ids alone',
      count(*), current_user),
    format('grant pg_read_all_stats to %I;', current_user), count(*)::double precision
  from pg_stat_get_activity(null) as a
  where a.datid = v_database and a.usesysid is not null and a.backend_start is null
  having count(*) > 0;
end
$$;

comment on function pgwake.diagnose_pins is
  'Internal: for diagnose, who keeps dead rows from being removed.';
revoke all on function pgwake.diagnose_pins from public;

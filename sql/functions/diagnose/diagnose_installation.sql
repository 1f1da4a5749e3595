-- For diagnose: what the installation is made of.
--
-- copy             error    not the database that pgwake was installed in
-- read_only        error    default_transaction_read_only is on (notice: a standby)
-- trigger_off      error    a trigger of pgwake's is missing or disabled
-- function_unsafe  error    security definer, without the search_path or for everybody
-- owner_differs    error    a function or table that isn't the owner's of pgwake.jobs
-- hook_path        warning  a trigger function of somebody's, on a table of pgwake's,
--                           that has no search_path of its own
-- autovacuum_off   warning  for the server, or for a table of pgwake's
-- default_rights   error    a default privilege gives others each function or table that is
--                           made: also cancel_job
-- encoding         error    the database is not of UTF8: one bad byte refuses each claim
-- ids_come_again   error    the sequence of ids lags behind the jobs
-- unpublishable    error    a table that is published, without a primary key or replica
--                           identity: its changes are refused
create or replace function pgwake.diagnose_installation()
returns setof pgwake.finding
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
begin
  return query
  select 'copy', 'error', current_database()::text,
    format('this database is %s, and pgwake was installed in %s: it is a copy', d.identity, i.identity),
    'pgwake adopt  # if its jobs are to run here too', null::double precision
  from pgwake.installation as i
  cross join pgwake.database_identity() as d(identity)
  where i.identity <> d.identity;

  if pg_is_in_recovery() then
    return query
    select 'read_only', 'notice', current_database()::text, 'this server is a standby: no job can be claimed here',
      'select pg_is_in_recovery();  -- false on the primary, where workers are to connect', null::double precision;
  elsif current_setting('default_transaction_read_only')::boolean then
    return query
    select 'read_only', 'error', current_database()::text,
      'default_transaction_read_only is on: no job can be enqueued, claimed or ended',
      format('alter database %I reset default_transaction_read_only;  -- or alter role, alter system: see pg_settings',
        current_database()),
      null::double precision;
  end if;

  return query
  select 'default_rights', 'error', r.rolname::text,
    format('by a default privilege of the role %s the role %I has rights on each function or table that it makes, '
      'pgwake''s too', d.defaclrole::regrole, r.rolname),
    format('alter default privileges for role %1$s%2$s revoke all on %3$s from %4$I; revoke all on all %3$s in schema '
      'pgwake from %4$I;', d.defaclrole::regrole, case when d.defaclnamespace <> 0 then ' in schema pgwake' else '' end,
      case d.defaclobjtype when 'f' then 'functions' else 'tables' end,
      r.rolname), null::double precision
  from pg_default_acl as d
  join pg_namespace as n on n.nspname = 'pgwake' and n.nspowner = d.defaclrole
  cross join lateral (
    select distinct a.grantee from aclexplode(d.defaclacl) as a where a.grantee not in (0, d.defaclrole)
  ) as g
  join pg_roles as r on r.oid = g.grantee
  where d.defaclobjtype in ('f', 'r') and d.defaclnamespace in (0, n.oid)
    and exists (
      select from pg_proc as p
      cross join lateral aclexplode(p.proacl) as a
      where p.pronamespace = n.oid and a.grantee = g.grantee and d.defaclobjtype = 'f'
      union all
      select from pg_class as c
      cross join lateral aclexplode(c.relacl) as a
      where c.relnamespace = n.oid and a.grantee = g.grantee and d.defaclobjtype = 'r')
  order by r.rolname, d.defaclobjtype
  limit 10;

  return query
  select 'encoding', 'error', current_database()::text,
    format('the database has the encoding %s: a text that is not UTF8 has each claim refused that meets it',
      getdatabaseencoding()),
    format('create database %I encoding ''UTF8'' template template0;  -- then move the queue there',
      current_database() || '_utf8'), null::double precision
  where getdatabaseencoding() <> 'UTF8';

  return query
  select 'ids_come_again', 'error', 'pgwake.jobs_id_seq',
    format('the sequence of ids is at %s, and there is a job %s: ids are given out twice', s.last_value, m.highest),
    'select pgwake.maintain(''ids'');  -- as workers do each minute', (m.highest - s.last_value)::double precision
  from pgwake.jobs_id_seq as s
  cross join (select max(j.id) as highest from pgwake.jobs as j) as m
  where m.highest > s.last_value;

  return query
  select distinct 'unpublishable', 'error', t.relid::regclass::text,
    format('the table is published by %s, and has no replica identity: its updates and deletes are refused',
      pgwake.say_name(p.pubname)),
    format('alter table %s replica identity full;', t.relid::regclass), null::double precision
  from pg_publication as p
  cross join lateral pg_get_publication_tables(p.pubname) as t
  join pg_class as c on c.oid = t.relid and c.relnamespace = 'pgwake'::regnamespace
  where (p.pubupdate or p.pubdelete) and c.relkind = 'r' and (
    c.relreplident = 'n'
    or c.relreplident = 'd'
      and not exists (select from pg_index as i where i.indrelid = c.oid and i.indisprimary));

  return query
  with expected (place, relation, name, definition) as (
    values
      (1, 'pgwake.jobs'::regclass, 'jobs_before_insert',
       'before insert on %s for each row when (new.concurrency_key is not null or new.depends_on is not null '
       'or new.expires_at is not null) execute function pgwake.before_insert_jobs()'),
      (2, 'pgwake.jobs', 'jobs_after_insert',
       'after insert on %s referencing new table as inserted for each statement '
       'execute function pgwake.after_insert_jobs()'),
      (3, 'pgwake.jobs', 'jobs_after_delete',
       'after delete on %s referencing old table as changed for each statement '
       'execute function pgwake.after_change_jobs(''-1'')'),
      (4, 'pgwake.jobs', 'jobs_after_update_from',
       'after update on %s referencing old table as changed for each statement '
       'execute function pgwake.after_change_jobs(''-1'')'),
      (5, 'pgwake.jobs', 'jobs_after_update_to',
       'after update on %s referencing old table as replaced new table as changed for each statement '
       'execute function pgwake.after_change_jobs(''1'')'),
      (6, 'pgwake.queues', 'queues_after_change',
       'after insert or update or delete on %s for each row execute function pgwake.after_change_queues()'),
      (7, 'pgwake.concurrency_limits', 'limits_after_change',
       'after insert or update or delete on %s for each row execute function pgwake.after_change_limits()'),
      (8, 'pgwake.events', 'events_before_insert',
       'before insert on %s for each row execute function pgwake.before_insert_events()'),
      (9, 'pgwake.events', 'events_after_insert',
       'after insert on %s deferrable initially deferred for each row execute function pgwake.after_insert_events()')
    union all
    select 10, t.relid, 'jobs_after_truncate',
      'after truncate on %s for each statement execute function pgwake.after_truncate_jobs()'
    from pg_partition_tree('pgwake.jobs') as t
    where t.isleaf
  ),
  faults as (
    select e.place, e.relation, e.name, 'is missing' as what,
      format('create %s %s ' || e.definition, case when e.place = 9 then 'constraint trigger' else 'trigger' end, e.name,
        e.relation) as fix
    from expected as e
    where not exists (select from pg_trigger as t where t.tgrelid = e.relation and t.tgname = e.name)
    union all
    select 0, t.tgrelid, t.tgname, case t.tgenabled when 'D' then 'is disabled' else 'fires on replicas alone' end,
      format('alter table %s enable trigger %I', t.tgrelid::regclass, t.tgname)
    from pg_trigger as t
    join pg_proc as p on p.oid = t.tgfoid
    where p.pronamespace = 'pgwake'::regnamespace and t.tgenabled not in ('O', 'A')
  )
  select 'trigger_off', 'error', format('%s on %s', f.name, f.relation),
    format('the trigger %s on %s %s: jobs wake nobody, wait for nothing, or are not counted', f.name, f.relation,
      f.what),
    f.fix || ';  -- then select pgwake.recount_jobs() has them counted', null::double precision
  from faults as f
  order by f.place, f.name, f.relation
  limit 10;

  return query
  select 'function_unsafe', 'error', p.oid::regprocedure::text,
    case when o.is_open then 'everybody may execute it with the rights of its owner'
      else 'it runs with the rights of its owner, by whatever search_path its caller has' end,
    case when o.is_open then format('revoke all on function %s from public;', p.oid::regprocedure)
      else format('alter function %s set search_path = pg_catalog, pg_temp;', p.oid::regprocedure) end,
    null::double precision
  from pg_proc as p
  cross join lateral (
    select exists (
      select from aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) as a where a.grantee = 0
    ) as is_open
  ) as o
  where p.pronamespace = 'pgwake'::regnamespace and p.prosecdef
    and (o.is_open or not coalesce(p.proconfig, '{}') @> array['search_path=pg_catalog, pg_temp'])
  order by p.oid::regprocedure::text
  limit 10;

  return query
  with strangers as (
    select p.oid::regprocedure::text as name, 'function' as what, p.proowner as owner
    from pg_proc as p
    where p.pronamespace = 'pgwake'::regnamespace
    union all
    select c.oid::regclass::text, case c.relkind when 'v' then 'view' else 'table' end, c.relowner
    from pg_class as c
    where c.relnamespace = 'pgwake'::regnamespace and c.relkind in ('r', 'p', 'v')
  )
  select 'owner_differs', 'error', s.name,
    format('the %s is owned by %s, and pgwake.jobs by %s', s.what, s.owner::regrole, c.relowner::regrole),
    format('alter %s %s owner to %s;', s.what, s.name, c.relowner::regrole), null::double precision
  from strangers as s
  join pg_class as c on c.oid = 'pgwake.jobs'::regclass and c.relowner <> s.owner
  order by s.name
  limit 10;

  -- A row a function, however many leaves have its trigger.
  return query
  select distinct 'hook_path', 'warning', h.name,
    'a trigger function on a table of pgwake''s that has no search_path of its own: when pgwake''s functions write the '
      'row, it finds nothing that it does not name with its schema',
    format('alter function %s set search_path = %I, pg_temp;', h.name, h.nspname), null::double precision
  from (
    select p.oid::regprocedure::text as name, n.nspname
    from pg_trigger as t
    join pg_class as c on c.oid = t.tgrelid
    join pg_proc as p on p.oid = t.tgfoid
    join pg_namespace as n on n.oid = p.pronamespace
    join pg_language as l on l.oid = p.prolang
    where c.relnamespace = 'pgwake'::regnamespace and n.nspname <> 'pgwake' and l.lanname not in ('internal', 'c')
      and not t.tgisinternal and t.tgenabled <> 'D'
      and not exists (select from unnest(p.proconfig) as g(setting) where starts_with(g.setting, 'search_path='))
  ) as h
  order by h.name
  limit 10;

  return query
  select 'autovacuum_off', 'warning', o.name,
    format('%s: dead rows are never removed, and the tables grow', o.problem), o.fix, null::double precision
  from (
    select s.name, s.name || ' is off' as problem,
      format('alter system reset %s;  -- then select pg_reload_conf()', s.name) as fix
    from pg_settings as s
    where s.name in ('autovacuum', 'track_counts') and s.setting = 'off'
    union all
    select c.oid::regclass::text, format('autovacuum is off for %s', c.oid::regclass),
      format('alter table %s reset (autovacuum_enabled);', c.oid::regclass)
    from pg_class as c
    cross join pg_options_to_table(c.reloptions) as r
    where c.relnamespace = 'pgwake'::regnamespace and r.option_name = 'autovacuum_enabled'
      and not r.option_value::boolean
  ) as o
  order by o.name
  limit 10;
end
$$;

comment on function pgwake.diagnose_installation is
  'Internal: for diagnose, what the installation is made of.';
revoke all on function pgwake.diagnose_installation from public;

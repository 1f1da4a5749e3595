-- What a worker would lack that connects as the caller: rows as of diagnose(), which has
-- what does not depend on who asks. Runs with the caller's rights, which it is about.
--
-- rights       error    it may not call what every worker calls
-- sessions     warning  no room for the sessions of `processes` worker processes: five
--                       each, and one of their supervisor
-- environment  error    the database is not noted for `environment` (null: not looked at)
-- grants       error    a role may not call what roles.sql grants to it: `roles` and
--                       `functions` are parallel arrays of names (null: not looked at);
--                       none where roles.sql has not been run
create or replace function pgwake.diagnose_worker(
  processes int default 1, environment text default null, roles text[] default null, functions text[] default null
)
returns setof pgwake.finding
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
  v_needed constant bigint := 5 * diagnose_worker.processes::bigint + 1;
begin
  return query
  select 'rights', 'error', current_user::text,
    format('a worker of this role may not call %s', string_agg(p.proname, ', ' order by p.proname)),
    format('grant pgwake_worker to %I;  -- once pgwake init --roles has been run', current_user),
    null::double precision
  from pg_proc as p
  where p.pronamespace = 'pgwake'::regnamespace
    and p.proname in ('claim_rows', 'complete_jobs', 'diagnose', 'extend_leases', 'fail_jobs', 'maintain',
      'release_jobs', 'report_worker_slots')
    and not has_function_privilege(p.oid, 'execute')
  having count(*) > 0;

  return query
  select 'sessions', 'warning', 'PGWAKE_PROCESSES',
    format('a worker of %s processes has %s sessions; of the %s that this role may have, %s are in use by others',
      diagnose_worker.processes, v_needed, s.allowed, s.used),
    'export PGWAKE_PROCESSES=1  # or raise max_connections, or the limit of the role or database, or have others use '
      'a pooler',
    v_needed::double precision
  from (
    select
      least(
        (
          select sum(case s.name when 'max_connections' then s.setting::int else -s.setting::int end)
          from pg_settings as s
          where s.name in ('max_connections', 'superuser_reserved_connections', 'reserved_connections')
        ),
        nullif(d.datconnlimit, -1), nullif(r.rolconnlimit, -1)) as allowed,
      (
        select count(*)
        from pg_stat_activity as a
        where a.datid is not null and not (a.datid = d.oid and a.application_name ~ '^pgwake:')
          and (d.datconnlimit = -1 or a.datid = d.oid) and (r.rolconnlimit = -1 or a.usesysid = r.oid)
      ) as used
    from pg_database as d, pg_roles as r
    where d.datname = current_database() and r.rolname = current_user
  ) as s
  where s.used + v_needed > s.allowed;

  if diagnose_worker.environment is not null then
    return query
    select 'environment', 'error', 'PGWAKE_ENVIRONMENT',
      format('it is %s, and the database is noted for %s: a worker waits', diagnose_worker.environment,
        coalesce(a.environment, 'none')),
      format('pgwake adopt --environment %s  # if this is its database',
        '''' || replace(diagnose_worker.environment, '''', '''"''"''') || ''''),
      null::double precision
    from pgwake.get_adoption() as a
    where a.environment is distinct from diagnose_worker.environment;
  end if;

  return query
  select 'grants', 'error', f.role, format('%s may not call %s', f.role, string_agg(f.name, ', ' order by f.name)),
    'pgwake init --roles', null::double precision
  from unnest(diagnose_worker.roles, diagnose_worker.functions) as f(role, name)
  join pg_roles as r on r.rolname = f.role
  join pg_proc as p on p.proname = f.name and p.pronamespace = 'pgwake'::regnamespace
  where has_schema_privilege(r.oid, 'pgwake'::regnamespace, 'usage')
    and not has_function_privilege(r.oid, p.oid, 'execute')
  group by f.role
  order by f.role;
end
$$;

comment on function pgwake.diagnose_worker is
  'What a worker that connects as the caller would lack; rows as of diagnose.';
revoke all on function pgwake.diagnose_worker from public;

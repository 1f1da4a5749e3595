"""The SQL of what `pgwake doctor` asks besides diagnose()."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

from pgwake.database.statements import Connection
from pgwake.finding import Finding

# What a worker calls, whatever it does.
WORK = (
    "claim_batch",
    "complete_jobs",
    "diagnose",
    "extend_leases",
    "fail_jobs",
    "maintain",
    "release_jobs",
    "report_worker_slots",
)

_DIAGNOSE = "select * from pgwake.diagnose()"
_COUNT_FINDINGS = """
select d.check_name, d.severity, count(*)
from pgwake.diagnose() as d
group by d.check_name, d.severity
"""
_CLOCK = "select clock_timestamp()"
_WHERE = "select current_database(), current_user::text, pg_is_in_recovery()"
_DENIED = """
select f.name
from unnest($1::text[]) as f(name)
join pg_catalog.pg_proc as p
  on p.proname = f.name and p.pronamespace = 'pgwake'::regnamespace
where not has_function_privilege(p.oid, 'execute')
order by f.name
"""
_HAS_SCHEMA = """
select has_schema_privilege(n.oid, 'usage')
from pg_catalog.pg_namespace as n
where n.nspname = 'pgwake'
"""
# Where roles.sql has not been run in this database, the roles are not meant for it.
_MISSING_GRANTS = """
select f.role, array_agg(f.name order by f.name)
from unnest($1::text[], $2::text[]) as f(role, name)
join pg_catalog.pg_roles as r on r.rolname = f.role
join pg_catalog.pg_proc as p
  on p.proname = f.name and p.pronamespace = 'pgwake'::regnamespace
where has_schema_privilege(r.oid, 'pgwake'::regnamespace, 'usage')
  and not has_function_privilege(r.oid, p.oid, 'execute')
group by f.role
order by f.role
"""
# What this role may have at most, and what others than workers of this database use.
_SESSIONS = """
select
  least(
    (
      select sum(case s.name when 'max_connections' then s.setting::int
                             else -s.setting::int end)
      from pg_catalog.pg_settings as s
      where s.name in
        ('max_connections', 'superuser_reserved_connections', 'reserved_connections')
    ),
    nullif(d.datconnlimit, -1), nullif(r.rolconnlimit, -1)
  )::int,
  (
    select count(*)
    from pg_catalog.pg_stat_activity as a
    where a.datid is not null
      and not (a.datid = d.oid and a.application_name ~ '^pgwake:')
      and (d.datconnlimit = -1 or a.datid = d.oid)
      and (r.rolconnlimit = -1 or a.usesysid = r.oid)
  )
from pg_catalog.pg_database as d, pg_catalog.pg_roles as r
where d.datname = current_database() and r.rolname = current_user
"""


class Where(NamedTuple):
    """Where a session has come to."""

    database: str
    role: str
    is_standby: bool


class Count(NamedTuple):
    """How many findings a check has."""

    check: str
    severity: str
    findings: int


async def diagnose(connection: Connection) -> list[Finding]:
    """Return what the database finds."""
    return [Finding(*row) for row in await connection.fetch(_DIAGNOSE)]


async def count_findings(
    connection: Connection,
    timeout: float,  # noqa: ASYNC109, asyncpg cancels the statement on the server
) -> list[Count]:
    """Return how many findings diagnose() has, a row a check and severity.

    Raises:
        TimeoutError: It has taken longer than `timeout`, in seconds.
    """
    rows = await connection.fetch(_COUNT_FINDINGS, timeout=timeout)
    return [Count(*row) for row in rows]


async def clock(connection: Connection) -> datetime:
    """Return the server's time."""
    now: datetime = await connection.fetchval(_CLOCK)
    return now


async def where(connection: Connection) -> Where:
    """Return where a session has come to."""
    row = await connection.fetchrow(_WHERE)
    assert row is not None  # noqa: S101, it has no from
    return Where(*row)


async def may_use_schema(connection: Connection) -> bool | None:
    """Return whether this role may use the schema; None: there is none."""
    answer: bool | None = await connection.fetchval(_HAS_SCHEMA)
    return answer


async def denied(connection: Connection) -> list[str]:
    """Return which of the functions that a worker calls this role may not."""
    return [row[0] for row in await connection.fetch(_DENIED, WORK)]


async def missing_grants(
    connection: Connection, roles: Sequence[str], functions: Sequence[str]
) -> list[tuple[str, list[str]]]:
    """Return what the roles may not execute of the functions beside them."""
    rows = await connection.fetch(_MISSING_GRANTS, roles, functions)
    return [(row[0], row[1]) for row in rows]


async def sessions(connection: Connection) -> tuple[int, int]:
    """Return how many sessions this role may have, and how many are in use.

    Without those of workers of this database.
    """
    row: Any = await connection.fetchrow(_SESSIONS)
    return row[0], row[1]

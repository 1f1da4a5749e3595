"""The SQL of `pgwake doctor`: what the database is asked."""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from pgwake.database.statements import Connection
from pgwake.finding import Finding

_DIAGNOSE = """
select * from pgwake.diagnose_worker($1, $2, $3, $4)
union all
select * from pgwake.diagnose()
"""
_COUNT_FINDINGS = """
select d.check_name, d.severity, count(*)
from pgwake.diagnose() as d
group by d.check_name, d.severity
"""
_CLOCK = "select clock_timestamp()"
_WHERE = "select current_database(), pg_is_in_recovery()"


class Where(NamedTuple):
    """Where a session has come to."""

    database: str
    is_standby: bool


class Count(NamedTuple):
    """How many findings a check has."""

    check: str
    severity: str
    findings: int


async def diagnose(
    connection: Connection,
    processes: int,
    environment: str | None,
    roles: Sequence[str],
    functions: Sequence[str],
) -> list[Finding]:
    """Return what the database finds, and what a worker of this role would lack."""
    rows = await connection.fetch(_DIAGNOSE, processes, environment, roles, functions)
    return [Finding(*row) for row in rows]


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

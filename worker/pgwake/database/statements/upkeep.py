"""The SQL of the upkeep, and of what workers say of themselves."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pgwake.database.statements import Connection

_RELEASE_WORKER_JOBS = "select * from pgwake.release_worker_jobs($1)"
_MAINTAIN = "select pgwake.maintain($1)"
_DECLARE_KINDS = "select pgwake.declare_kinds($1::text::jsonb, $2, $3)"
_TAKE_UPKEEP = """
select t.steps, t.done_ago::text from pgwake.take_upkeep($1, $2, $3) as t
"""
_REPORT_AND_TAKE_UPKEEP = """
select t.steps, t.done_ago::text
from pgwake.report_worker_slots($1, $4, $5, $6, $7, $8, $9)
cross join pgwake.take_upkeep($1, $2, $3) as t
"""
_FORGET_WORKER = "select pgwake.forget_worker($1)"
_SESSION_COUNT = """
select count(*) from pg_stat_activity as a
where a.datname = current_database() and a.application_name = any ($1::text[])
  and (a.state <> 'idle' or not $2)
"""
# Only its own role's: it may not end others'.
_END_SESSIONS = """
select count(*) filter (where pg_terminate_backend(a.pid)) from pg_stat_activity as a
where a.datname = current_database() and a.application_name = any ($1::text[])
  and (a.state <> 'idle' or not $2) and a.usename = current_user
  and a.pid <> pg_backend_pid()
"""
_END_SESSION = """
select pg_terminate_backend(a.pid) from pg_stat_activity as a
where a.pid = $1 and a.datname = current_database() and a.usename = current_user
  and a.application_name = $2
"""


class CrashCount(NamedTuple):
    """How many jobs of a kind were taken from dead workers.

    Attributes:
        queue: Their queue.
        kind: Their kind.
        jobs: How many.
        failed: How many of them are failed for good.
        cancelled: How many of them are cancelled, as had been asked for.
    """

    queue: str
    kind: str
    jobs: int
    failed: int
    cancelled: int


async def release_worker_jobs(connection: Connection, worker: str) -> list[CrashCount]:
    """Give back what a dead worker had."""
    rows = await connection.fetch(_RELEASE_WORKER_JOBS, worker)
    return [CrashCount(*row) for row in rows]


async def maintain(connection: Connection, step: str) -> dict[str, Any]:
    """Do a step of the upkeep; what it did."""
    done: dict[str, Any] = json.loads(await connection.fetchval(_MAINTAIN, step))
    return done


async def declare_kinds(
    connection: Connection, kinds: str, version: str, worker: str
) -> None:
    """Declare kinds' policy and payloads, JSON text; newest version wins."""
    await connection.fetchval(_DECLARE_KINDS, kinds, version, worker)


class Turn(NamedTuple):
    """What take_upkeep answers.

    Attributes:
        steps: What the worker is to do now; none: another worker does the upkeep.
        done_ago: How many seconds ago each step was last done, by whichever worker.
    """

    steps: Sequence[str]
    done_ago: Mapping[str, float]


async def take_upkeep(
    connection: Connection, worker: str, may_sweep: bool, done: Sequence[str]
) -> Turn:
    """Take a turn of the upkeep, if no other worker has it."""
    return _turn(await connection.fetchrow(_TAKE_UPKEEP, worker, may_sweep, done))


async def report_and_take_upkeep(
    connection: Connection,
    worker: str,
    may_sweep: bool,
    done: Sequence[str],
    *,
    host: str,
    pid: int,
    queues: Sequence[str],
    kinds: Sequence[str],
    slots: int,
    version: str,
) -> Turn:
    """Say that a worker is there, and take a turn as take_upkeep does."""
    report = (host, pid, queues, kinds, slots, version)
    return _turn(
        await connection.fetchrow(
            _REPORT_AND_TAKE_UPKEEP, worker, may_sweep, done, *report
        )
    )


def _turn(row: Any) -> Turn:
    return Turn(row["steps"], json.loads(row["done_ago"]))


async def forget_worker(connection: Connection, worker: str) -> None:
    """Say that a worker has ended."""
    await connection.fetchval(_FORGET_WORKER, worker)


async def session_count(
    connection: Connection, application_names: Sequence[str], *, busy: bool = False
) -> int:
    """Return how many sessions of these names the database has; only the busy ones?"""
    count: int = await connection.fetchval(_SESSION_COUNT, application_names, busy)
    return count


async def end_sessions(
    connection: Connection, application_names: Sequence[str], *, busy: bool = False
) -> int:
    """End the sessions of these names; only the busy ones? How many there were."""
    count: int = await connection.fetchval(_END_SESSIONS, application_names, busy)
    return count


async def end_session(connection: Connection, pid: int, application_name: str) -> bool:
    """End a session, if it has this name; whether there was one."""
    return bool(await connection.fetch(_END_SESSION, pid, application_name))

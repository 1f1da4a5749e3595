"""What the tests of the worker share: worker processes, diaries, waits for jobs."""

import json
import time
from collections.abc import Callable
from typing import Any, TypeAlias

from pgwake import Registry, Settings, Worker
from support import PATIENCE, Connection, wait_for
from support.sql.helpers import insert, job
from support.worker.metrics import wakeups

Row: TypeAlias = dict[str, Any]

ENDED = ("completed", "failed", "cancelled")


def settings(url: str, **changes: Any) -> Settings:
    """Settings under which nothing but a wake-up or a timer can start a job."""
    given = {
        "database_url": url,
        "http_port": 0,
        "poll_interval": 3600,
        "grace": 10,
        "cancel_grace": 1,
        **changes,
    }
    return Settings.load(**given)


def embedded(url: str, registry: Registry, **changes: Any) -> Worker:
    """A worker for this process, to be entered."""
    return Worker(settings(url, **changes), registry)


async def insert_some(
    connection: Connection, kind: str, count: int, **payload: Any
) -> None:
    """Insert so many jobs that are alike, in one statement."""
    await connection.execute(
        "insert into pgwake.jobs (kind, payload) select $1, $2::text::jsonb"
        " from generate_series(1, $3::int)",
        kind,
        json.dumps(payload),
        count,
    )


async def run(
    connection: Connection,
    url: str,
    handler: Callable[..., Any],
    columns: Row | None = None,
    settings: Row | None = None,
    **options: Any,
) -> Row:
    """Run one job of a handler to its end; its row.

    Args:
        connection: To insert it, and to look at it.
        url: The worker's database.
        handler: The kind is its name.
        columns: Of the job.
        settings: Of the worker.
        options: Of the handler.
    """
    registry = Registry()
    registry.job(handler.__name__, **options)(handler)
    job_id = await insert(connection, handler.__name__, **(columns or {}))
    async with embedded(url, registry, **(settings or {})):
        return await ended(connection, job_id)


async def ended(connection: Connection, job_id: int, within: float = PATIENCE) -> Row:
    """Wait for the end of a job; its row."""

    async def is_over() -> bool:
        return (await job(connection, job_id))["status"] in ENDED

    try:
        await wait_for(is_over, within)
    except AssertionError:
        row = await job(connection, job_id)
        raise AssertionError(f"not ended within {within} s: {row}") from None
    return await job(connection, job_id)


async def all_ended(connection: Connection, within: float = PATIENCE) -> None:
    """Wait until no job is live."""

    async def none_is_live() -> bool:
        return not await connection.fetchval(
            "select exists (select from pgwake.jobs_live)"
        )

    await wait_for(none_is_live, within)


async def in_status(
    connection: Connection, job_id: int, status: str, within: float = PATIENCE
) -> Row:
    """Wait until a job has a status; its row."""

    async def has_it() -> bool:
        return bool((await job(connection, job_id))["status"] == status)

    await wait_for(has_it, within)
    return await job(connection, job_id)


def reasons(row: Row) -> list[str]:
    """Why the attempts of a job failed, in order."""
    return [error["reason"] for error in row["errors"] or ()]


async def sessions(connection: Connection) -> list[Row]:
    """The sessions of workers and supervisors in this database."""
    rows = await connection.fetch(
        "select pid, application_name, query, state, backend_start"
        " from pg_stat_activity where datname = current_database()"
        " and application_name like 'pgwake:%'"
    )
    return [dict(row) for row in rows]


async def session_on_duty(connection: Connection) -> Row | None:
    """The session that has a queue's duty lock, and its notify lock if it sleeps."""
    row = await connection.fetchrow(
        "select a.pid, a.application_name from pg_locks as l"
        " join pg_stat_activity as a on a.pid = l.pid"
        " where l.locktype = 'advisory' and l.objsubid = 1"
        " and l.mode = 'ExclusiveLock' and a.datname = current_database()"
    )
    return None if row is None else dict(row)


async def asleep(worker: Worker, *queues: str) -> None:
    """Wait until a worker has the notify locks of its queues, has looked, and sleeps.

    It looks when it has started, when its listener is up, when it has the notify lock,
    and when it has asked who writes; some of these fall together.
    """
    seen: list[float] = []

    def has_looked() -> bool:
        lifeline = worker._lifeline
        locks = lifeline._listener._notify_locks if lifeline else {}
        if not locks or not all(locks[q].is_quiet for q in queues or ("default",)):
            return False
        seen.append(wakeups(worker))
        return len(seen) > 10 and len(set(seen[-10:])) == 1

    await wait_for(has_looked)


def clock() -> float:
    """The time that handlers note, comparable between processes of one machine."""
    return time.clock_gettime(time.CLOCK_MONOTONIC)

"""next_run_at and next_suspect_at: how long a consumer may sleep."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from support import Connection
from support.sql.helpers import call, claim, insert, job_in

OTHER_STATES = ["waiting", "running", "completed", "failed", "cancelled"]


async def due_in(connection: Connection, hours: float, **columns: Any) -> datetime:
    run_at: datetime = await connection.fetchval(
        "select now() + $1::interval", timedelta(hours=hours)
    )
    await insert(connection, run_at=run_at, **columns)
    return run_at


async def next_run_at(connection: Connection, **arguments: Any) -> datetime | None:
    at: datetime | None = await call(connection, "next_run_at", **arguments)
    return at


async def next_suspect_at(connection: Connection, *queues: str) -> datetime | None:
    at: datetime | None = await call(connection, "next_suspect_at", queues=list(queues))
    return at


async def test_an_empty_queue_has_none(connection: Connection) -> None:
    assert await next_run_at(connection) is None
    assert await next_suspect_at(connection, "default") is None


@pytest.mark.parametrize("hours", [[3, 1, 2], [1, 2, 3], [2, -1, 5], [-3, -5, 9]])
async def test_it_is_the_least_of_all_priorities(
    connection: Connection, hours: list[float]
) -> None:
    times = [
        await due_in(connection, hour, priority=priority)
        for priority, hour in zip((-100, 0, 100), hours, strict=True)
    ]
    await due_in(connection, 9)

    assert await next_run_at(connection) == min(times)


async def test_each_queue_has_its_own(connection: Connection) -> None:
    await due_in(connection, 1, queue="other")
    mine = await due_in(connection, 2, queue="mine")

    assert await next_run_at(connection, queue="mine") == mine
    assert await next_run_at(connection) is None
    assert await next_run_at(connection, queue=None) is None


@pytest.mark.parametrize("state", OTHER_STATES)
async def test_only_pending_jobs_count(connection: Connection, state: str) -> None:
    await job_in(connection, state)

    assert await next_run_at(connection) is None


async def test_a_claimed_job_counts_no_more(connection: Connection) -> None:
    await insert(connection)
    later = await due_in(connection, 1)
    await claim(connection)

    assert await next_run_at(connection) == later


@pytest.mark.parametrize(("first", "second"), [(0, 1), (1, 0)])
async def test_a_job_that_crashed_once_counts(
    connection: Connection, first: int, second: int
) -> None:
    earliest = await due_in(connection, 1, crash_count=first)
    await due_in(connection, 2, crash_count=second)

    assert await next_run_at(connection) == earliest


async def test_suspects_have_a_time_of_their_own(connection: Connection) -> None:
    suspect = await due_in(connection, 1, crash_count=2)
    ordinary = await due_in(connection, 2, crash_count=1)

    assert await next_run_at(connection) == ordinary
    assert await next_suspect_at(connection, "default") == suspect


async def test_the_next_suspect_is_the_earliest_of_all_queues_asked_for(
    connection: Connection,
) -> None:
    a = await due_in(connection, 3, queue="a", crash_count=2)
    b = await due_in(connection, 2, queue="b", crash_count=7)
    await due_in(connection, 1, queue="c", crash_count=2)

    assert await next_suspect_at(connection, "a", "b") == b
    assert await next_suspect_at(connection, "a") == a
    assert await next_suspect_at(connection) is None
    assert await call(connection, "next_suspect_at", queues=None) is None

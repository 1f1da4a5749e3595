"""next_run_at, next_run_ats and next_suspect_run_at: how long a consumer may sleep."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from support import PATIENCE, Connection
from support.sql.helpers import (
    call,
    claim,
    insert,
    job,
    job_in,
    pair,
    refused,
    rows,
    set_queue,
)

OTHER_STATES = ["waiting", "running", "completed", "failed", "cancelled"]


async def due_in(db: Connection, hours: float, **columns: Any) -> datetime:
    run_at: datetime = await db.fetchval(
        "select now() + $1::interval", timedelta(hours=hours)
    )
    await insert(db, run_at=run_at, **columns)
    return run_at


async def next_run_at(db: Connection, **arguments: Any) -> datetime | None:
    at: datetime | None = await call(db, "next_run_at", **arguments)
    return at


async def next_suspect_run_at(db: Connection, *queues: str) -> datetime | None:
    at: datetime | None = await call(db, "next_suspect_run_at", queues=list(queues))
    return at


async def test_an_empty_queue_has_none(db: Connection) -> None:
    assert await next_run_at(db) is None
    assert await next_suspect_run_at(db, "default") is None


@pytest.mark.parametrize("hours", [[3, 1, 2], [1, 2, 3], [2, -1, 5], [-3, -5, 9]])
async def test_it_is_the_least_of_all_priorities(
    db: Connection, hours: list[float]
) -> None:
    times = [
        await due_in(db, hour, priority=priority)
        for priority, hour in zip((-100, 0, 100), hours, strict=True)
    ]
    await due_in(db, 9)

    assert await next_run_at(db) == min(times)


async def test_each_queue_has_its_own(db: Connection) -> None:
    await due_in(db, 1, queue="other")
    mine = await due_in(db, 2, queue="mine")

    assert await next_run_at(db, queue="mine") == mine
    assert await next_run_at(db) is None
    assert await next_run_at(db, queue=None) is None


@pytest.mark.parametrize("state", OTHER_STATES)
async def test_only_pending_jobs_count(db: Connection, state: str) -> None:
    await job_in(db, state)

    assert await next_run_at(db) is None


async def test_a_claimed_job_counts_no_more(db: Connection) -> None:
    await insert(db)
    later = await due_in(db, 1)
    await claim(db)

    assert await next_run_at(db) == later


@pytest.mark.parametrize(("first", "second"), [(0, 1), (1, 0)])
async def test_a_job_that_crashed_once_counts(
    db: Connection, first: int, second: int
) -> None:
    earliest = await due_in(db, 1, crash_count=first)
    await due_in(db, 2, crash_count=second)

    assert await next_run_at(db) == earliest


async def test_many_queues_are_looked_at_together(db: Connection) -> None:
    """A row for those that have pending jobs, or such whose key may have room."""
    due = await due_in(db, -1, queue="due")
    later = await due_in(db, 1, queue="later", priority=7)
    await insert(db, queue="suspect", crash_count=2)
    keyed = {"queue": "keyed", "concurrency_key": "k"}
    await insert(db, **keyed)
    await insert(db, **keyed)
    (held,) = await claim(db, queue="keyed")
    await call(db, "complete_job", **pair(held))
    await job_in(db, "running", queue="busy")

    async def look(*queues: str) -> dict[str, datetime | None]:
        found = await rows(db, "next_run_ats", queues=list(queues))
        assert all(0 <= row["seconds"] < PATIENCE for row in found)
        return {row["queue"]: row["run_at"] for row in found}

    found = await look("due", "later", "suspect", "busy", "none")
    assert found == {"due": due, "later": later}
    assert await look("keyed") == {"keyed": await next_run_at(db, queue="keyed")}
    assert await look("keyed") != {"keyed": None}
    assert await look() == {}
    with refused("PW003"):
        await call(db, "next_run_ats", queues=None)


async def test_suspects_have_a_time_of_their_own(db: Connection) -> None:
    suspect = await due_in(db, 1, crash_count=2)
    ordinary = await due_in(db, 2, crash_count=1)

    assert await next_run_at(db) == ordinary
    assert await next_suspect_run_at(db, "default") == suspect


async def test_the_next_suspect_is_the_earliest_of_all_queues_asked_for(
    db: Connection,
) -> None:
    a = await due_in(db, 3, queue="a", crash_count=2)
    b = await due_in(db, 2, queue="b", crash_count=7)
    await due_in(db, 1, queue="c", crash_count=2)

    assert await next_suspect_run_at(db, "a", "b") == b
    assert await next_suspect_run_at(db, "a") == a
    assert await next_suspect_run_at(db) is None
    assert await call(db, "next_suspect_run_at", queues=None) is None


async def test_a_suspect_that_can_not_be_claimed_now_is_none(db: Connection) -> None:
    suspect = await insert(db, crash_count=2)
    run_at = (await job(db, suspect))["run_at"]
    assert await next_suspect_run_at(db, "default") == run_at

    until = run_at + timedelta(hours=1)
    await set_queue(db, paused_until=until)
    assert await next_suspect_run_at(db, "default") == until
    await call(db, "pause_queue")
    assert await next_suspect_run_at(db, "default") is None
    await call(db, "resume_queue")

    await set_queue(db, max_running=1)
    await insert(db, priority=1)
    (held,) = await claim(db)
    assert await next_suspect_run_at(db, "default") is None
    await call(db, "complete_job", **pair(held))
    assert await next_suspect_run_at(db, "default") == run_at

    await set_queue(db, max_running=None, rate_limit=0.001)
    await insert(db, priority=1)
    await claim(db)
    rate_at = await next_suspect_run_at(db, "default")
    assert rate_at is not None
    assert rate_at > run_at + timedelta(minutes=15)

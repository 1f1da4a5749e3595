"""Workers report themselves, for people to look at."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from support import Connect, Connection
from support.sql.helpers import (
    Row,
    call,
    claim,
    insert,
    insert_many,
    job_in,
    refused,
    rows,
    set_clock,
    status,
)


async def report(connection: Connection, worker: Any = "w1", **changes: Any) -> None:
    given = {
        "host": "h1",
        "pid": 7,
        "queues": ["default", "mail"],
        "kinds": ["a", "b"],
        "version": "2026.11",
        **changes,
    }
    await call(connection, "report_worker", worker=worker, **given)


async def workers(connection: Connection) -> list[Row]:
    return await rows(connection, "list_workers")


async def test_a_worker_is_listed_as_it_reported_itself(
    connection: Connection,
) -> None:
    await report(connection)
    (worker,) = await workers(connection)

    assert (worker["name"], worker["host"], worker["pid"]) == ("w1", "h1", 7)
    assert worker["queues"] == ["default", "mail"]
    assert worker["kinds"] == ["a", "b"]
    assert (worker["version"], worker["running_count"]) == ("2026.11", 0)
    assert worker["started_at"] == worker["seen_at"]
    assert worker["is_live"]


async def test_another_report_says_what_is_so_now_and_keeps_the_start(
    connection: Connection,
) -> None:
    await report(connection)
    await set_clock(connection, "10 s")
    await report(connection, queues=["x"], kinds=[], version=None)
    (worker,) = await workers(connection)

    assert (worker["queues"], worker["kinds"], worker["version"]) == (["x"], [], None)
    assert worker["seen_at"] - worker["started_at"] >= timedelta(seconds=10)


async def test_a_worker_that_is_silent_for_30_seconds_is_not_live(
    connection: Connection,
) -> None:
    await report(connection)
    await set_clock(connection, "29 s")
    assert [w["is_live"] for w in await workers(connection)] == [True]
    await set_clock(connection, "31 s")
    assert [w["is_live"] for w in await workers(connection)] == [False]

    await report(connection)
    assert [w["is_live"] for w in await workers(connection)] == [True]


async def test_its_running_jobs_are_counted_over_its_queues(
    connection: Connection,
) -> None:
    await report(connection)
    await report(connection, "w2")
    for queue in ("default", "mail", "other"):
        await insert_many(connection, 3, queue)
        await claim(connection, 2, queue, worker="w1")
    await claim(connection, 1, worker="w2")

    counts = {w["name"]: w["running_count"] for w in await workers(connection)}
    assert counts == {"w1": 4, "w2": 1}


async def test_a_forgotten_worker_is_gone_and_its_jobs_run_on(
    connection: Connection,
) -> None:
    job_id = await insert(connection)
    await claim(connection, worker="w1")
    await report(connection)

    assert await call(connection, "forget_worker", worker="w1") is True
    assert await workers(connection) == []
    assert await status(connection, job_id) == "running"
    assert await call(connection, "forget_worker", worker="w1") is False
    assert await call(connection, "forget_worker", worker=None) is False


async def test_a_worker_that_is_not_seen_for_a_day_is_removed(
    connection: Connection,
) -> None:
    await report(connection, "old")
    await set_clock(connection, "12 hours")
    await report(connection, "young")
    await call(connection, "maintain", step="retention")
    assert len(await workers(connection)) == 2

    await set_clock(connection, "24 hours 1 min")
    await call(connection, "maintain", step="retention")
    assert [w["name"] for w in await workers(connection)] == ["young"]


async def test_a_removal_does_not_wait_for_a_report(
    connection: Connection, other: Connection
) -> None:
    await report(connection)
    await set_clock(connection, "2 days")
    async with other.transaction():
        await report(other)
        await call(connection, "maintain", step="retention")
    assert len(await workers(connection)) == 1


async def test_two_reports_at_once_leave_one_row(
    connect: Connect, connection: Connection
) -> None:
    others = [await connect() for _ in range(4)]
    async with asyncio.TaskGroup() as tasks:
        for other in others:
            tasks.create_task(report(other))
    assert len(await workers(connection)) == 1


@pytest.mark.parametrize(
    "arguments",
    [
        {"worker": None},
        {"worker": ""},
        {"worker": "x" * 513},
        {"queues": None},
        {"kinds": None},
        {"kinds": ["a"] * 10_001},
    ],
)
async def test_a_report_that_can_not_be_meant_is_refused(
    connection: Connection, arguments: dict[str, Any]
) -> None:
    with refused("PW003"):
        await report(connection, **{"worker": "w1", **arguments})
    assert await workers(connection) == []


async def test_what_it_says_of_itself_is_bounded_and_may_be_missing(
    connection: Connection,
) -> None:
    await report(connection, host="h" * 1000, version="v" * 1000)
    await report(connection, "w2", host=None, pid=None, queues=[None], kinds=[None])
    long, bare = await workers(connection)

    assert (len(long["host"]), len(long["version"])) == (255, 100)
    assert (bare["host"], bare["pid"], bare["queues"]) == (None, None, [None])
    assert await rows(connection, "list_kinds")


async def test_nothing_rests_on_it(connection: Connection) -> None:
    """A dead worker's report keeps no lease, and no report is needed to claim."""
    job_id = await job_in(connection, "running")
    await report(connection)
    await set_clock(connection, "1 hour")
    await report(connection)
    await call(connection, "maintain", step="sweep")

    assert await status(connection, job_id) == "pending"

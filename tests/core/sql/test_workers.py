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


async def report(db: Connection, worker: Any = "w1", **changes: Any) -> None:
    given = {
        "host": "h1",
        "pid": 7,
        "queues": ["default", "mail"],
        "kinds": ["a", "b"],
        "slots": 10,
        "version": "2026.11",
        **changes,
    }
    await call(db, "report_worker_slots", worker=worker, **given)


async def workers(db: Connection) -> list[Row]:
    return await rows(db, "list_workers")


async def test_a_worker_is_listed_as_it_reported_itself(db: Connection) -> None:
    await report(db)
    (worker,) = await workers(db)

    assert (worker["name"], worker["host"], worker["pid"]) == ("w1", "h1", 7)
    assert worker["queues"] == ["default", "mail"]
    assert worker["kinds"] == ["a", "b"]
    assert (worker["version"], worker["running_count"]) == ("2026.11", 0)
    assert worker["started_at"] == worker["seen_at"]
    assert worker["is_live"]


async def test_another_report_says_what_is_so_now_and_keeps_the_start(
    db: Connection,
) -> None:
    await report(db)
    await set_clock(db, "10 s")
    await report(db, queues=["x"], kinds=[], version=None)
    (worker,) = await workers(db)

    assert (worker["queues"], worker["kinds"], worker["version"]) == (["x"], [], None)
    assert worker["seen_at"] - worker["started_at"] >= timedelta(seconds=10)


async def test_a_worker_of_schema_1_reports_no_slots(db: Connection) -> None:
    slots = "select slots from pgwake.workers"
    await report(db)
    assert await db.fetchval(slots) == 10
    await db.execute("select pgwake.report_worker('w1', 'h2', 8, '{x}', '{}', '1.0')")
    (worker,) = await workers(db)
    assert (worker["host"], worker["queues"]) == ("h2", ["x"])
    assert await db.fetchval(slots) is None


async def test_a_worker_that_is_silent_for_30_seconds_is_not_live(
    db: Connection,
) -> None:
    await report(db)
    await set_clock(db, "20 s")
    assert [w["is_live"] for w in await workers(db)] == [True]
    await set_clock(db, "31 s")
    assert [w["is_live"] for w in await workers(db)] == [False]

    await report(db)
    assert [w["is_live"] for w in await workers(db)] == [True]


async def test_its_running_jobs_are_counted_over_its_queues(db: Connection) -> None:
    await report(db)
    await report(db, "w2")
    for queue in ("default", "mail", "other"):
        await insert_many(db, 3, queue)
        await claim(db, 2, queue, worker="w1")
    await claim(db, 1, worker="w2")

    counts = {w["name"]: w["running_count"] for w in await workers(db)}
    assert counts == {"w1": 4, "w2": 1}


async def test_a_forgotten_worker_is_gone_and_its_jobs_run_on(db: Connection) -> None:
    job_id = await insert(db)
    await claim(db, worker="w1")
    await report(db)

    assert await call(db, "forget_worker", worker="w1") is True
    assert await workers(db) == []
    assert await status(db, job_id) == "running"
    assert await call(db, "forget_worker", worker="w1") is False
    assert await call(db, "forget_worker", worker=None) is False


async def test_a_worker_that_is_not_seen_for_a_day_is_removed(db: Connection) -> None:
    await report(db, "old")
    await set_clock(db, "12 hours")
    await report(db, "young")
    await call(db, "maintain", step="retention")
    assert len(await workers(db)) == 2

    await set_clock(db, "24 hours 1 min")
    await call(db, "maintain", step="retention")
    assert [w["name"] for w in await workers(db)] == ["young"]


async def test_a_removal_does_not_wait_for_a_report(
    db: Connection, other: Connection
) -> None:
    await report(db)
    await set_clock(db, "2 days")
    async with other.transaction():
        await report(other)
        await call(db, "maintain", step="retention")
    assert len(await workers(db)) == 1


async def test_two_reports_at_once_leave_one_row(
    connect: Connect, db: Connection
) -> None:
    others = [await connect() for _ in range(4)]
    async with asyncio.TaskGroup() as tasks:
        for other in others:
            tasks.create_task(report(other))
    assert len(await workers(db)) == 1


@pytest.mark.parametrize(
    "arguments",
    [
        {"worker": None},
        {"worker": ""},
        {"worker": "x" * 513},
        {"queues": None},
        {"kinds": None},
        {"kinds": ["a"] * 10_001},
        {"slots": -1},
    ],
)
async def test_a_report_that_can_not_be_meant_is_refused(
    db: Connection, arguments: dict[str, Any]
) -> None:
    with refused("PW003"):
        await report(db, **{"worker": "w1", **arguments})
    assert await workers(db) == []


async def test_what_it_says_of_itself_is_bounded_and_may_be_missing(
    db: Connection,
) -> None:
    await report(db, host="h" * 1000, version="v" * 1000)
    await report(db, "w2", host=None, pid=None, queues=[None], kinds=[None])
    long, bare = await workers(db)

    assert (len(long["host"]), len(long["version"])) == (255, 100)
    assert (bare["host"], bare["pid"], bare["queues"]) == (None, None, [None])
    assert await rows(db, "list_kinds")


async def test_nothing_rests_on_it(db: Connection) -> None:
    """A dead worker's report keeps no lease, and no report is needed to claim."""
    job_id = await job_in(db, "running")
    await report(db)
    await set_clock(db, "1 hour")
    await report(db)
    await call(db, "maintain", step="sweep")

    assert await status(db, job_id) == "pending"

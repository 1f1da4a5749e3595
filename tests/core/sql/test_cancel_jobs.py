import asyncio
from typing import Any

import pytest

from support import Connect, Connection
from support.sql.helpers import (
    Listener,
    blocking,
    call,
    claim,
    insert,
    insert_many,
    job,
    job_in,
    pair,
    pairs,
    refused,
    rows,
    running,
    status,
)


async def cancel(db: Connection, **arguments: Any) -> dict[str, int]:
    return {
        row["outcome"]: row["job_count"]
        for row in await rows(db, "cancel_jobs", **arguments)
    }


async def test_those_that_have_not_started_end_at_once_and_others_are_asked(
    db: Connection,
) -> None:
    held = await running(db)
    pending = await insert(db)
    waiting = await insert(db, status="waiting")
    ended = [await job_in(db, "completed", queue="other")]

    answer = await cancel(db, kind="noop")
    assert answer == {"cancelled": 2, "cancel_requested": 1}
    states = [await status(db, i) for i in (held["id"], pending, waiting)]
    assert states == ["running", "cancelled", "cancelled"]
    assert (await job(db, held["id"]))["cancel_requested_at"] is not None
    assert await status(db, ended[0]) == "completed"
    (stats,) = await rows(db, "get_queue_stats", queue="default")
    assert (stats["pending_count"], stats["waiting_count"]) == (0, 0)
    assert (stats["running_count"], stats["cancelled_count"]) == (1, 2)


async def test_it_leaves_them_as_cancel_job_does(db: Connection) -> None:
    columns: dict[str, Any] = {
        "payload": {"a": 1},
        "metadata": {"b": 2},
        "unique_key": "u",
    }
    columns |= {"attempt": 2, "crash_count": 1, "bounce_count": 3, "priority": 5}
    async with db.transaction():
        one = await insert(db, "a", **columns, concurrency_key="c")
        two = await insert(db, "b", **columns, concurrency_key="c")
        await call(db, "cancel_job", job_id=one)
        await cancel(db, kind="b")

    by_one, by_many = await job(db, one), await job(db, two)
    assert by_many == by_one | {"id": two, "kind": "b"}


FILTERS = [
    {"queue": "a"},
    {"kind": "a"},
    {"concurrency_key": "a"},
    {"unique_key": "a"},
    {"queue": "a", "kind": "a", "concurrency_key": "a", "unique_key": "a"},
]


@pytest.mark.parametrize("chosen", FILTERS, ids=repr)
async def test_only_those_that_are_asked_for_are_cancelled(
    db: Connection, chosen: dict[str, str]
) -> None:
    other = {**dict.fromkeys(("queue", "kind"), "b"), "unique_key": "b"}
    left = [
        await insert(db, **{**other, "unique_key": "c"}),
        await insert(db, **{**other, "unique_key": "d", "concurrency_key": "b"}),
    ]
    target = await insert(db, **{**other, **chosen})

    assert await cancel(db, **chosen) == {"cancelled": 1}
    assert await status(db, target) == "cancelled"
    assert [await status(db, i) for i in left] == ["pending", "waiting"]


@pytest.mark.parametrize("state", ["waiting", "pending", "running"])
async def test_only_those_of_the_status_are_cancelled(
    db: Connection, state: str
) -> None:
    there = {"running": (await running(db))["id"]}
    there |= {name: await insert(db, status=name) for name in ("waiting", "pending")}

    (outcome,) = await cancel(db, status=state)
    assert outcome == ("cancel_requested" if state == "running" else "cancelled")
    for name, job_id in there.items():
        row = await job(db, job_id)
        is_asked = row["cancel_requested_at"] is not None
        assert (row["status"] == "cancelled" or is_asked) == (name == state)


async def test_the_first_by_id_go_first_and_as_many_as_asked_for(
    db: Connection,
) -> None:
    there = [await insert(db) for _ in range(5)]

    assert await cancel(db, kind="noop", max_jobs=3) == {"cancelled": 3}
    states = [await status(db, i) for i in there]
    assert states == ["cancelled"] * 3 + ["pending"] * 2


async def test_repeated_calls_come_to_an_end(db: Connection) -> None:
    await insert_many(db, 5)
    await claim(db, 3)

    seen = []
    while answer := await cancel(db, kind="noop", max_jobs=2):
        seen.append(answer)
    assert sum(sum(answer.values()) for answer in seen) == 5


async def test_a_dry_run_says_the_same_and_changes_nothing(db: Connection) -> None:
    await insert_many(db, 3)
    await claim(db, 1)
    before = await db.fetch("select * from pgwake.jobs order by id")

    answer = await cancel(db, queue="default", dry_run=True)
    assert answer == {"cancelled": 2, "cancel_requested": 1}
    assert await db.fetch("select * from pgwake.jobs order by id") == before


REFUSED: list[dict[str, Any]] = [
    {},
    {"status": "completed"},
    {"status": "done"},
    {"kind": "a", "max_jobs": 0},
    {"kind": "a", "max_jobs": None},
    {"kind": "a", "dry_run": None},
]


@pytest.mark.parametrize("arguments", REFUSED, ids=repr)
async def test_what_can_not_be_meant_is_refused(
    db: Connection, arguments: dict[str, Any]
) -> None:
    job_id = await insert(db, "a")
    with refused("PW003"):
        await cancel(db, **arguments)
    assert await status(db, job_id) == "pending"


async def test_one_that_ends_while_it_is_waited_for_is_said_to_be_missed(
    db: Connection, other: Connection
) -> None:
    held = await running(db)
    await insert(db)
    async with blocking(db, other, cancel(other, kind="noop")) as task:
        await call(db, "complete_job", **pair(held))

    assert await task == {"cancelled": 1, "missed": 1}
    assert await status(db, held["id"]) == "completed"


async def test_one_that_is_claimed_while_it_is_waited_for_is_asked(
    db: Connection, other: Connection
) -> None:
    job_id = await insert(db)
    async with blocking(db, other, cancel(other, kind="noop")) as task:
        await claim(db)

    assert await task == {"cancel_requested": 1}
    assert await status(db, job_id) == "running"


async def test_workers_are_told_a_hundred_jobs_at_a_time(
    connect: Connect, db: Connection
) -> None:
    listener = await Listener.start(await connect(), "pgwake_cancel")
    await insert_many(db, 260)
    one = await claim(db, 250, worker='w "1"')
    two = await claim(db, 10, worker="w2")
    await cancel(db, status="running")

    news = sorted(await listener.events(), key=lambda event: event["jobs"][0])
    assert [(event["worker"], len(event["jobs"])) for event in news] == [
        ('w "1"', 100), ('w "1"', 100), ('w "1"', 50), ("w2", 10)
    ]  # fmt: skip
    told = [job_id for event in news for job_id in event["jobs"]]
    assert sorted(told) == sorted(held["id"] for held in one + two)


async def test_the_worker_of_one_job_is_told(connect: Connect, db: Connection) -> None:
    listener = await Listener.start(await connect(), "pgwake_cancel")
    held = await running(db)
    for _ in range(2):  # a lost notification can be made up for
        await call(db, "cancel_job", job_id=held["id"])
        assert await listener.events() == [{"worker": "w1", "jobs": [held["id"]]}]


async def test_nobody_is_told_of_a_job_that_does_not_run(
    connect: Connect, db: Connection
) -> None:
    listener = await Listener.start(await connect(), "pgwake_cancel")
    await call(db, "cancel_job", job_id=await insert(db))
    await insert(db)
    await cancel(db, kind="noop")

    assert await listener.heard() == []


async def test_with_notify_off_nobody_is_told(connect: Connect, db: Connection) -> None:
    listener = await Listener.start(await connect(), "pgwake_cancel")
    await insert_many(db, 2)
    held = await claim(db, 2)
    await db.execute("set pgwake.notify = off")
    await call(db, "cancel_job", job_id=held[0]["id"])
    await cancel(db, status="running")

    assert await listener.heard() == []


async def test_the_longest_names_of_workers_can_be_told(
    connect: Connect, db: Connection
) -> None:
    listener = await Listener.start(await connect(), "pgwake_cancel")
    await db.execute("select setval('pgwake.jobs_id_seq', 9223372036854775600)")
    await insert_many(db, 100)
    await claim(db, 100, worker="\x01" * 512)  # each becomes six characters
    await cancel(db, status="running")

    (news,) = await listener.events()
    assert (len(news["jobs"]), news["worker"]) == (100, "\x01" * 512)


async def test_a_freed_key_is_flagged(db: Connection) -> None:
    job_id = await insert(db, concurrency_key="k")
    await insert(db, concurrency_key="other")
    await db.execute("update pgwake.jobs set status = 'pending' where id = $1", job_id)
    await db.execute("delete from pgwake.rechecks")
    await cancel(db, kind="noop")

    rechecks = await db.fetch("select queue, key from pgwake.rechecks")
    assert [tuple(row) for row in rechecks] == [("default", "k")]


async def test_each_end_is_announced_to_those_who_watch(
    connect: Connect, db: Connection
) -> None:
    job_id = await insert(db)
    watcher = await connect()
    listener = await Listener.start(watcher, "job_status_changed")
    await call(watcher, "watch")
    await cancel(db, kind="noop")

    (event,) = await listener.events()
    assert (event["id"], event["new_status"]) == (job_id, "cancelled")


async def test_two_who_cancel_the_same_jobs_cancel_each_once(
    connect: Connect, db: Connection
) -> None:
    await insert_many(db, 300)
    sessions = [await connect() for _ in range(4)]
    answers = await asyncio.gather(
        *(cancel(session, kind="noop") for session in sessions)
    )

    assert sum(answer.get("cancelled", 0) for answer in answers) == 300
    (stats,) = await rows(db, "get_queue_stats", queue="default")
    assert (stats["pending_count"], stats["cancelled_count"]) == (0, 300)


async def test_a_release_that_cancels_is_answered_the_same_when_it_is_repeated(
    db: Connection,
) -> None:
    await insert_many(db, 2)
    held = await claim(db, 2)
    await call(db, "cancel_job", job_id=held[0]["id"])

    first = await call(db, "release_jobs", **pairs(*held))
    assert first == ["cancel_requested", "released"]
    again = await call(db, "release_jobs", **pairs(*held))
    # A release leaves no lease to know it by: that half is answered as lost.
    assert again == ["cancel_requested", "lease_lost"]

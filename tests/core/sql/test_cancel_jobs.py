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


async def cancel(connection: Connection, **arguments: Any) -> dict[str, int]:
    return {
        row["outcome"]: row["job_count"]
        for row in await rows(connection, "cancel_jobs", **arguments)
    }


async def test_those_that_have_not_started_end_at_once_and_others_are_asked(
    connection: Connection,
) -> None:
    held = await running(connection)
    pending = await insert(connection)
    waiting = await insert(connection, status="waiting")
    ended = [await job_in(connection, "completed", queue="other")]

    answer = await cancel(connection, kind="noop")
    assert answer == {"cancelled": 2, "cancel_requested": 1}
    states = [await status(connection, i) for i in (held["id"], pending, waiting)]
    assert states == ["running", "cancelled", "cancelled"]
    assert (await job(connection, held["id"]))["cancel_requested_at"] is not None
    assert await status(connection, ended[0]) == "completed"
    (stats,) = await rows(connection, "get_queue_stats", queue="default")
    assert (stats["pending_count"], stats["waiting_count"]) == (0, 0)
    assert (stats["running_count"], stats["cancelled_count"]) == (1, 2)


async def test_it_leaves_them_as_cancel_job_does(connection: Connection) -> None:
    columns: dict[str, Any] = {
        "payload": {"a": 1},
        "metadata": {"b": 2},
        "unique_key": "u",
    }
    columns |= {"attempt": 2, "crash_count": 1, "bounce_count": 3, "priority": 5}
    async with connection.transaction():
        one = await insert(connection, "a", **columns, concurrency_key="c")
        two = await insert(connection, "b", **columns, concurrency_key="c")
        await call(connection, "cancel_job", job_id=one)
        await cancel(connection, kind="b")

    by_one, by_many = await job(connection, one), await job(connection, two)
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
    connection: Connection, chosen: dict[str, str]
) -> None:
    other = {**dict.fromkeys(("queue", "kind"), "b"), "unique_key": "b"}
    left = [
        await insert(connection, **{**other, "unique_key": "c"}),
        await insert(
            connection, **{**other, "unique_key": "d", "concurrency_key": "b"}
        ),
    ]
    target = await insert(connection, **{**other, **chosen})

    assert await cancel(connection, **chosen) == {"cancelled": 1}
    assert await status(connection, target) == "cancelled"
    assert [await status(connection, i) for i in left] == ["pending", "waiting"]


@pytest.mark.parametrize("state", ["waiting", "pending", "running"])
async def test_only_those_of_the_status_are_cancelled(
    connection: Connection, state: str
) -> None:
    there = {"running": (await running(connection))["id"]}
    there |= {
        name: await insert(connection, status=name) for name in ("waiting", "pending")
    }

    (outcome,) = await cancel(connection, status=state)
    assert outcome == ("cancel_requested" if state == "running" else "cancelled")
    for name, job_id in there.items():
        row = await job(connection, job_id)
        is_asked = row["cancel_requested_at"] is not None
        assert (row["status"] == "cancelled" or is_asked) == (name == state)


async def test_the_first_by_id_go_first_and_as_many_as_asked_for(
    connection: Connection,
) -> None:
    there = [await insert(connection) for _ in range(5)]

    assert await cancel(connection, kind="noop", max_jobs=3) == {"cancelled": 3}
    states = [await status(connection, i) for i in there]
    assert states == ["cancelled"] * 3 + ["pending"] * 2


async def test_repeated_calls_come_to_an_end(connection: Connection) -> None:
    await insert_many(connection, 5)
    await claim(connection, 3)

    seen = []
    while answer := await cancel(connection, kind="noop", max_jobs=2):
        seen.append(answer)
    assert sum(sum(answer.values()) for answer in seen) == 5


async def test_a_dry_run_says_the_same_and_changes_nothing(
    connection: Connection,
) -> None:
    await insert_many(connection, 3)
    await claim(connection, 1)
    before = await connection.fetch("select * from pgwake.jobs order by id")

    answer = await cancel(connection, queue="default", dry_run=True)
    assert answer == {"cancelled": 2, "cancel_requested": 1}
    assert await connection.fetch("select * from pgwake.jobs order by id") == before


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
    connection: Connection, arguments: dict[str, Any]
) -> None:
    job_id = await insert(connection, "a")
    with refused("PW003"):
        await cancel(connection, **arguments)
    assert await status(connection, job_id) == "pending"


async def test_one_that_ends_while_it_is_waited_for_is_said_to_be_missed(
    connection: Connection, other: Connection
) -> None:
    held = await running(connection)
    await insert(connection)
    async with blocking(connection, other, cancel(other, kind="noop")) as task:
        await call(connection, "complete_job", **pair(held))

    assert await task == {"cancelled": 1, "missed": 1}
    assert await status(connection, held["id"]) == "completed"


async def test_one_that_is_claimed_while_it_is_waited_for_is_asked(
    connection: Connection, other: Connection
) -> None:
    job_id = await insert(connection)
    async with blocking(connection, other, cancel(other, kind="noop")) as task:
        await claim(connection)

    assert await task == {"cancel_requested": 1}
    assert await status(connection, job_id) == "running"


async def test_workers_are_told_a_hundred_jobs_at_a_time(
    connect: Connect, connection: Connection
) -> None:
    listener = await Listener.start(await connect(), "pgwake_cancel")
    await insert_many(connection, 260)
    one = await claim(connection, 250, worker='w "1"')
    two = await claim(connection, 10, worker="w2")
    await cancel(connection, status="running")

    news = sorted(await listener.events(), key=lambda event: event["jobs"][0])
    assert [(event["worker"], len(event["jobs"])) for event in news] == [
        ('w "1"', 100), ('w "1"', 100), ('w "1"', 50), ("w2", 10)
    ]  # fmt: skip
    told = [job_id for event in news for job_id in event["jobs"]]
    assert sorted(told) == sorted(held["id"] for held in one + two)


async def test_the_worker_of_one_job_is_told(
    connect: Connect, connection: Connection
) -> None:
    listener = await Listener.start(await connect(), "pgwake_cancel")
    held = await running(connection)
    for _ in range(2):  # a lost notification can be made up for
        await call(connection, "cancel_job", job_id=held["id"])
        assert await listener.events() == [{"worker": "w1", "jobs": [held["id"]]}]


async def test_nobody_is_told_of_a_job_that_does_not_run(
    connect: Connect, connection: Connection
) -> None:
    listener = await Listener.start(await connect(), "pgwake_cancel")
    await call(connection, "cancel_job", job_id=await insert(connection))
    await insert(connection)
    await cancel(connection, kind="noop")

    assert await listener.heard() == []


async def test_with_notify_off_nobody_is_told(
    connect: Connect, connection: Connection
) -> None:
    listener = await Listener.start(await connect(), "pgwake_cancel")
    await insert_many(connection, 2)
    held = await claim(connection, 2)
    await connection.execute("set pgwake.notify = off")
    await call(connection, "cancel_job", job_id=held[0]["id"])
    await cancel(connection, status="running")

    assert await listener.heard() == []


async def test_the_longest_names_of_workers_can_be_told(
    connect: Connect, connection: Connection
) -> None:
    listener = await Listener.start(await connect(), "pgwake_cancel")
    await connection.execute("select setval('pgwake.jobs_id_seq', 9223372036854775600)")
    await insert_many(connection, 100)
    await claim(connection, 100, worker="\x01" * 512)  # each becomes six characters
    await cancel(connection, status="running")

    (news,) = await listener.events()
    assert (len(news["jobs"]), news["worker"]) == (100, "\x01" * 512)


async def test_a_freed_key_is_looked_at(connection: Connection) -> None:
    job_id = await insert(connection, concurrency_key="k")
    await insert(connection, concurrency_key="other")
    await connection.execute(
        "update pgwake.jobs set status = 'pending' where id = $1", job_id
    )
    await connection.execute("delete from pgwake.looks")
    await cancel(connection, kind="noop")

    looks = await connection.fetch("select queue, key from pgwake.looks")
    assert [tuple(row) for row in looks] == [("default", "k")]


async def test_each_end_is_announced_to_those_who_watch(
    connect: Connect, connection: Connection
) -> None:
    job_id = await insert(connection)
    watcher = await connect()
    listener = await Listener.start(watcher, "job_status_changed")
    await call(watcher, "watch")
    await cancel(connection, kind="noop")

    (event,) = await listener.events()
    assert (event["id"], event["new_status"]) == (job_id, "cancelled")


async def test_two_who_cancel_the_same_jobs_cancel_each_once(
    connect: Connect, connection: Connection
) -> None:
    await insert_many(connection, 300)
    sessions = [await connect() for _ in range(4)]
    answers = await asyncio.gather(
        *(cancel(session, kind="noop") for session in sessions)
    )

    assert sum(answer.get("cancelled", 0) for answer in answers) == 300
    (stats,) = await rows(connection, "get_queue_stats", queue="default")
    assert (stats["pending_count"], stats["cancelled_count"]) == (0, 300)


async def test_a_release_that_cancels_is_answered_the_same_when_it_is_repeated(
    connection: Connection,
) -> None:
    await insert_many(connection, 2)
    held = await claim(connection, 2)
    await call(connection, "cancel_job", job_id=held[0]["id"])

    first = await call(connection, "release_jobs", **pairs(*held))
    assert first == ["cancel_requested", "released"]
    again = await call(connection, "release_jobs", **pairs(*held))
    # A release leaves no lease to know it by: that half is answered as lost.
    assert again == ["cancel_requested", "lease_lost"]

import pytest

from support import Connection
from support.sql.helpers import (
    call,
    claim,
    insert,
    insert_many,
    job,
    pair,
    refused,
    rows,
)


async def release(connection: Connection, worker: str) -> int:
    released = await rows(connection, "release_worker_jobs", worker=worker)
    return sum(row["job_count"] for row in released)


async def test_a_dead_workers_jobs_go_back_at_once_as_crashes(
    connection: Connection,
) -> None:
    await insert_many(connection, 3)
    held = await claim(connection, 3, worker="w1")

    assert await release(connection, "w1") == 3
    for claimed in held:
        row = await job(connection, claimed["id"])
        assert (row["status"], row["attempt"], row["crash_count"]) == ("pending", 0, 1)
        assert row["errors"][0]["message"] == "the worker died; worker w1"


async def test_it_tells_how_many_by_queue_and_kind(connection: Connection) -> None:
    for queue, kind in [("q1", "a"), ("q1", "a"), ("q1", "b"), ("q2", "a")]:
        await insert(connection, kind, queue=queue)
    for queue in ("q1", "q2"):
        await claim(connection, 9, queue, worker="w1")

    released = await rows(connection, "release_worker_jobs", worker="w1")
    assert sorted(tuple(row.values()) for row in released) == [
        ("q1", "a", 2, 0, 0),
        ("q1", "b", 1, 0, 0),
        ("q2", "a", 1, 0, 0),
    ]


@pytest.mark.parametrize("other", ["w", "w11", "W1", "%"])
async def test_other_workers_keep_theirs(connection: Connection, other: str) -> None:
    await insert(connection)
    (held,) = await claim(connection, worker="w1")

    assert await rows(connection, "release_worker_jobs", worker=other) == []
    await call(connection, "complete_job", **pair(held))


async def test_a_repeat_finds_nothing_more(connection: Connection) -> None:
    await insert(connection)
    await claim(connection, worker="w1")

    assert [await release(connection, "w1") for _ in range(2)] == [1, 0]


async def test_a_job_that_is_being_completed_is_left_to_its_completion(
    connection: Connection, other: Connection
) -> None:
    await insert_many(connection, 2)
    first, second = await claim(connection, 2, worker="w1")
    async with connection.transaction():
        await call(connection, "complete_job", **pair(first))
        assert await release(other, "w1") == 1

    assert (await job(connection, first["id"]))["status"] == "completed"
    assert (await job(connection, second["id"]))["status"] == "pending"


async def test_crashes_add_up_to_a_dead_letter(connection: Connection) -> None:
    job_id = await insert(connection, crash_count=4)
    await rows(connection, "claim_next_job", worker="w1")

    assert await release(connection, "w1") == 1
    assert (await job(connection, job_id))["status"] == "failed"


@pytest.mark.parametrize("worker", [None, ""])
async def test_a_worker_must_be_named(
    connection: Connection, worker: str | None
) -> None:
    with refused("PW003"):
        await rows(connection, "release_worker_jobs", worker=worker)


async def test_it_tells_how_many_are_failed_or_cancelled_by_it(
    connection: Connection,
) -> None:
    await connection.execute(
        "insert into pgwake.queues (name, max_crashes) values ('fragile', 1)"
    )
    ids = [await insert(connection, "a", queue="fragile") for _ in range(4)]
    await claim(connection, 9, "fragile", worker="w1")
    await call(connection, "cancel_job", job_id=ids[0])

    (released,) = await rows(connection, "release_worker_jobs", worker="w1")
    assert tuple(released.values()) == ("fragile", "a", 4, 3, 1)

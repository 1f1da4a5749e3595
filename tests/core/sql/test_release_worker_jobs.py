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


async def release(db: Connection, worker: str) -> int:
    released = await rows(db, "release_worker_jobs", worker=worker)
    return sum(row["job_count"] for row in released)


async def test_a_dead_workers_jobs_go_back_at_once_as_crashes(db: Connection) -> None:
    await insert_many(db, 3)
    held = await claim(db, 3, worker="w1")

    assert await release(db, "w1") == 3
    for claimed in held:
        row = await job(db, claimed["id"])
        assert (row["status"], row["attempt"], row["crash_count"]) == ("pending", 0, 1)
        assert row["errors"][0]["message"] == "the worker died; worker w1"


async def test_it_tells_how_many_by_queue_and_kind(db: Connection) -> None:
    for queue, kind in [("q1", "a"), ("q1", "a"), ("q1", "b"), ("q2", "a")]:
        await insert(db, kind, queue=queue)
    for queue in ("q1", "q2"):
        await claim(db, 9, queue, worker="w1")

    released = await rows(db, "release_worker_jobs", worker="w1")
    assert sorted(tuple(row.values()) for row in released) == [
        ("q1", "a", 2, 0, 0),
        ("q1", "b", 1, 0, 0),
        ("q2", "a", 1, 0, 0),
    ]


@pytest.mark.parametrize("other", ["w", "w11", "W1", "%"])
async def test_other_workers_keep_theirs(db: Connection, other: str) -> None:
    await insert(db)
    (held,) = await claim(db, worker="w1")

    assert await rows(db, "release_worker_jobs", worker=other) == []
    await call(db, "complete_job", **pair(held))


async def test_a_repeat_finds_nothing_more(db: Connection) -> None:
    await insert(db)
    await claim(db, worker="w1")

    assert [await release(db, "w1") for _ in range(2)] == [1, 0]


async def test_a_job_that_is_being_completed_is_left_to_its_completion(
    db: Connection, other: Connection
) -> None:
    await insert_many(db, 2)
    first, second = await claim(db, 2, worker="w1")
    async with db.transaction():
        await call(db, "complete_job", **pair(first))
        assert await release(other, "w1") == 1

    assert (await job(db, first["id"]))["status"] == "completed"
    assert (await job(db, second["id"]))["status"] == "pending"


async def test_crashes_add_up_to_a_dead_letter(db: Connection) -> None:
    job_id = await insert(db, crash_count=4)
    await rows(db, "claim_next_job", worker="w1")

    assert await release(db, "w1") == 1
    assert (await job(db, job_id))["status"] == "failed"


@pytest.mark.parametrize("worker", [None, ""])
async def test_a_worker_must_be_named(db: Connection, worker: str | None) -> None:
    with refused("PW003"):
        await rows(db, "release_worker_jobs", worker=worker)


async def test_it_tells_how_many_are_failed_or_cancelled_by_it(db: Connection) -> None:
    await db.execute(
        "insert into pgwake.queues (name, max_crashes) values ('fragile', 1)"
    )
    ids = [await insert(db, "a", queue="fragile") for _ in range(4)]
    await claim(db, 9, "fragile", worker="w1")
    await call(db, "cancel_job", job_id=ids[0])

    (released,) = await rows(db, "release_worker_jobs", worker="w1")
    assert tuple(released.values()) == ("fragile", "a", 4, 3, 1)

from typing import Any

import pytest

from support import Connection
from support.sql.helpers import (
    call,
    insert,
    job_in,
    refused,
    row_locked,
    rows,
    set_clock,
)

ENDED = ["failed", "completed", "cancelled"]


async def purge(db: Connection, **arguments: Any) -> int:
    count: int = await call(db, "purge", **arguments)
    return count


async def ids(db: Connection) -> set[int]:
    return {row[0] for row in await db.fetch("select id from pgwake.jobs")}


async def stats(db: Connection, queue: str = "default") -> dict[str, int]:
    (row,) = await rows(db, "get_queue_stats", queue=queue)
    return {state: row[f"{state}_count"] for state in ENDED}


@pytest.mark.parametrize("state", ENDED)
async def test_only_those_of_the_status_are_deleted_and_counted(
    db: Connection, state: str
) -> None:
    there = {name: await job_in(db, name) for name in ENDED}
    live = await insert(db)

    assert await purge(db, status=state, queue="default") == 1
    left = {job_id for name, job_id in there.items() if name != state}
    assert await ids(db) == left | {live}
    assert await stats(db) == {name: int(name != state) for name in ENDED}
    assert await purge(db, status=state, queue="default") == 0


@pytest.mark.parametrize("state", ENDED)
async def test_only_those_of_the_queue_and_kind_are_deleted(
    db: Connection, state: str
) -> None:
    there = {}
    for queue in "ab":
        for kind in "cd":
            there[queue + kind] = await job_in(db, state, queue=queue, kind=kind)

    assert await purge(db, status=state, queue="a", kind="c") == 1
    assert await ids(db) == {there["ad"], there["bc"], there["bd"]}
    assert await purge(db, status=state, queue="b") == 2
    assert await purge(db, status=state, kind="c") == 0
    assert await purge(db, status=state, kind="d") == 1


@pytest.mark.parametrize("state", ENDED)
async def test_only_those_that_ended_before_then_are_deleted(
    db: Connection, state: str
) -> None:
    await job_in(db, state)
    await set_clock(db, "1 hour")
    late = await job_in(db, state)
    then = await db.fetchval("select now() + interval '30 minutes'")

    assert await purge(db, status=state, before=then) == 1
    assert await ids(db) == {late}


async def test_only_those_of_the_fingerprint_are_deleted(db: Connection) -> None:
    await job_in(db, "failed", kind="a")
    other = await job_in(db, "failed", kind="b")
    groups = await rows(db, "list_failed", kind="a")

    assert await purge(db, fingerprint=groups[0]["fingerprint"]) == 1
    assert await ids(db) == {other}


@pytest.mark.parametrize("state", ENDED)
async def test_the_oldest_go_first_and_as_many_as_asked_for(
    db: Connection, state: str
) -> None:
    there = []
    for day in range(4):  # each in a leaf of its own
        await set_clock(db, f"{day} days")
        there.append(await job_in(db, state))

    assert await purge(db, status=state, queue="default", max_jobs=3) == 3
    assert await ids(db) == {there[3]}


@pytest.mark.parametrize("state", ENDED)
async def test_a_dry_run_counts_and_deletes_nothing(db: Connection, state: str) -> None:
    there = {await job_in(db, state) for _ in range(3)}
    arguments = {"status": state, "queue": "default", "dry_run": True}

    assert await purge(db, **arguments) == 3
    assert await purge(db, **arguments, max_jobs=2) == 2
    assert await ids(db) == there


@pytest.mark.parametrize("state", ENDED)
async def test_one_that_somebody_has_locked_is_left(
    db: Connection, other: Connection, state: str
) -> None:
    there = [await job_in(db, state) for _ in range(2)]
    async with row_locked(db, there[0]):
        assert await purge(other, status=state, queue="default") == 1
    assert await ids(db) == {there[0]}


REFUSED: list[dict[str, Any]] = [
    {},
    {"status": "completed"},
    {"status": "pending", "queue": "default"},
    {"status": "waiting", "queue": "default"},
    {"status": "running", "queue": "default"},
    {"status": "done", "queue": "default"},
    {"status": None, "queue": "default"},
    {"status": "completed", "fingerprint": "f"},
    {"queue": "default", "max_jobs": 0},
    {"queue": "default", "max_jobs": None},
    {"queue": "default", "max_jobs": 1_000_001},
    {"queue": "default", "dry_run": None},
]


@pytest.mark.parametrize("arguments", REFUSED, ids=repr)
async def test_what_can_not_be_meant_is_refused(
    db: Connection, arguments: dict[str, Any]
) -> None:
    there = {await job_in(db, state) for state in ENDED}
    with refused("PW003"):
        await purge(db, **arguments)
    assert await ids(db) == there

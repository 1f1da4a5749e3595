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


async def purge(connection: Connection, **arguments: Any) -> int:
    count: int = await call(connection, "purge", **arguments)
    return count


async def ids(connection: Connection) -> set[int]:
    return {row[0] for row in await connection.fetch("select id from pgwake.jobs")}


async def stats(connection: Connection, queue: str = "default") -> dict[str, int]:
    (row,) = await rows(connection, "get_queue_stats", queue=queue)
    return {state: row[f"{state}_count"] for state in ENDED}


@pytest.mark.parametrize("state", ENDED)
async def test_only_those_of_the_status_are_deleted_and_counted(
    connection: Connection, state: str
) -> None:
    there = {name: await job_in(connection, name) for name in ENDED}
    live = await insert(connection)

    assert await purge(connection, status=state, queue="default") == 1
    left = {job_id for name, job_id in there.items() if name != state}
    assert await ids(connection) == left | {live}
    assert await stats(connection) == {name: int(name != state) for name in ENDED}
    assert await purge(connection, status=state, queue="default") == 0


@pytest.mark.parametrize("state", ENDED)
async def test_only_those_of_the_queue_and_kind_are_deleted(
    connection: Connection, state: str
) -> None:
    there = {}
    for queue in "ab":
        for kind in "cd":
            there[queue + kind] = await job_in(
                connection, state, queue=queue, kind=kind
            )

    assert await purge(connection, status=state, queue="a", kind="c") == 1
    assert await ids(connection) == {there["ad"], there["bc"], there["bd"]}
    assert await purge(connection, status=state, queue="b") == 2
    assert await purge(connection, status=state, kind="c") == 0
    assert await purge(connection, status=state, kind="d") == 1


@pytest.mark.parametrize("state", ENDED)
async def test_only_those_that_ended_before_then_are_deleted(
    connection: Connection, state: str
) -> None:
    await job_in(connection, state)
    await set_clock(connection, "1 hour")
    late = await job_in(connection, state)
    then = await connection.fetchval("select now() + interval '30 minutes'")

    assert await purge(connection, status=state, before=then) == 1
    assert await ids(connection) == {late}


async def test_only_those_of_the_fingerprint_are_deleted(
    connection: Connection,
) -> None:
    await job_in(connection, "failed", kind="a")
    other = await job_in(connection, "failed", kind="b")
    groups = await rows(connection, "list_failed", kind="a")

    assert await purge(connection, fingerprint=groups[0]["fingerprint"]) == 1
    assert await ids(connection) == {other}


@pytest.mark.parametrize("state", ENDED)
async def test_the_oldest_go_first_and_as_many_as_asked_for(
    connection: Connection, state: str
) -> None:
    there = []
    for day in range(4):  # each in a leaf of its own
        await set_clock(connection, f"{day} days")
        there.append(await job_in(connection, state))

    assert await purge(connection, status=state, queue="default", max_jobs=3) == 3
    assert await ids(connection) == {there[3]}


@pytest.mark.parametrize("state", ENDED)
async def test_a_dry_run_counts_and_deletes_nothing(
    connection: Connection, state: str
) -> None:
    there = {await job_in(connection, state) for _ in range(3)}
    arguments = {"status": state, "queue": "default", "dry_run": True}

    assert await purge(connection, **arguments) == 3
    assert await purge(connection, **arguments, max_jobs=2) == 2
    assert await ids(connection) == there


@pytest.mark.parametrize("state", ENDED)
async def test_one_that_somebody_has_locked_is_left(
    connection: Connection, other: Connection, state: str
) -> None:
    there = [await job_in(connection, state) for _ in range(2)]
    async with row_locked(connection, there[0]):
        assert await purge(other, status=state, queue="default") == 1
    assert await ids(connection) == {there[0]}


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
    connection: Connection, arguments: dict[str, Any]
) -> None:
    there = {await job_in(connection, state) for state in ENDED}
    with refused("PW003"):
        await purge(connection, **arguments)
    assert await ids(connection) == there


async def test_before_now_deletes_all(connection: Connection) -> None:
    for _ in range(3):
        await job_in(connection, "failed")
    now = await call(connection, "now")
    assert await purge(connection, before=now) == 3

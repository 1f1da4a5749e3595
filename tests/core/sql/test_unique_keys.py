"""Kind and unique_key are unique together among live jobs."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from support import Connection
from support.sql.helpers import (
    Row,
    call,
    claim,
    insert,
    job,
    pair,
    refused,
    running,
    set_clock,
    status,
    sweep,
)

END: dict[str, Callable[[Connection, Row], Awaitable[Any]]] = {
    "completing": lambda c, j: call(c, "complete_job", **pair(j)),
    "failing": lambda c, j: call(c, "fail_job", **pair(j), retryable=False),
    "forcing": lambda c, j: call(c, "force_fail_job", job_id=j["id"], reason="x"),
}


async def enqueue(connection: Connection, on_conflict: str, **arguments: Any) -> int:
    arguments = {"kind": "a", "unique_key": "k", **arguments}
    job_id: int = await call(
        connection, "enqueue", on_conflict=on_conflict, **arguments
    )
    return job_id


@pytest.mark.parametrize("on_conflict", ["return", "replace", "raise"])
async def test_a_free_key_is_just_taken(
    connection: Connection, on_conflict: str
) -> None:
    job_id = await enqueue(connection, on_conflict)

    assert (await job(connection, job_id))["unique_key"] == "k"


@pytest.mark.parametrize("on_conflict", ["return", "replace", "raise"])
async def test_another_kind_has_keys_of_its_own(
    connection: Connection, on_conflict: str
) -> None:
    first = await enqueue(connection, on_conflict)
    second = await enqueue(connection, on_conflict, kind="b")

    assert first != second


async def test_queues_share_the_keys_of_a_kind(connection: Connection) -> None:
    job_id = await enqueue(connection, "return", queue="one")

    assert await enqueue(connection, "return", queue="two") == job_id
    assert (await job(connection, job_id))["queue"] == "one"


@pytest.mark.parametrize("state", ["waiting", "pending", "running"])
async def test_return_adds_nothing_and_changes_nothing(
    connection: Connection, state: str
) -> None:
    job_id = await live_job(connection, state)
    before = await job(connection, job_id)

    assert await enqueue(connection, "return", payload={"new": 1}) == job_id
    assert await job(connection, job_id) == before


@pytest.mark.parametrize("state", ["waiting", "pending", "running"])
async def test_raise_names_the_live_job(connection: Connection, state: str) -> None:
    job_id = await live_job(connection, state)

    with refused("PW005") as caught:
        await enqueue(connection, "raise")
    assert caught.value.detail == f"job {job_id}"


@pytest.mark.parametrize("state", ["waiting", "pending"])
async def test_replace_renews_a_job_that_has_not_started(
    connection: Connection, state: str
) -> None:
    job_id = await live_job(connection, state)
    new = {"payload": {"new": 1}, "metadata": {"m": 1}, "priority": 9}
    new |= {"queue": "other", "max_attempts": 7}

    assert await enqueue(connection, "replace", **new) == job_id
    replaced = await job(connection, job_id)
    assert {column: replaced[column] for column in new} == new
    # What the old one waited for is not asked for again.
    assert replaced["status"] == "pending"


async def test_replace_moves_when_the_job_is_due(connection: Connection) -> None:
    run_at = await connection.fetchval("select now() + interval '1 hour'")
    job_id = await enqueue(connection, "raise", run_at=run_at)
    await enqueue(connection, "replace")

    assert [claimed["id"] for claimed in await claim(connection)] == [job_id]


async def test_replace_takes_the_key_of_a_running_job_and_adds_beside_it(
    connection: Connection,
) -> None:
    old = await running(connection, kind="a", unique_key="k")
    new_id = await enqueue(connection, "replace", payload={"new": 1})

    assert new_id != old["id"]
    assert (await job(connection, old["id"]))["unique_key"] is None
    assert (await job(connection, new_id))["payload"] == {"new": 1}
    await call(connection, "complete_job", **pair(old))
    assert await status(connection, new_id) == "pending"


async def test_a_job_that_gave_up_its_key_can_still_be_retried(
    connection: Connection,
) -> None:
    old = await running(connection, kind="a", unique_key="k")
    new_id = await enqueue(connection, "replace")

    assert await call(connection, "fail_job", **pair(old)) == "retry"
    assert await status(connection, old["id"]) == await status(connection, new_id)


@pytest.mark.parametrize("end", END)
async def test_the_end_of_a_job_frees_its_key(connection: Connection, end: str) -> None:
    old = await running(connection, kind="a", unique_key="k")
    await END[end](connection, old)

    assert await enqueue(connection, "raise") != old["id"]


async def test_a_plain_insert_of_a_taken_key_is_a_unique_violation(
    connection: Connection,
) -> None:
    await insert(connection, "a", unique_key="k")

    with refused("23505", by="jobs_unique_key_idx"):
        await insert(connection, "a", unique_key="k")


async def test_jobs_without_a_key_are_never_the_same(connection: Connection) -> None:
    assert await call(connection, "enqueue", kind="a") != await call(
        connection, "enqueue", kind="a"
    )


async def test_a_job_with_a_key_goes_back_to_pending_by_every_way(
    connection: Connection,
) -> None:
    claimed = await running(connection, kind="a", unique_key="k")
    await call(connection, "fail_job", **pair(claimed))
    await set_clock(connection, "1 hour")
    (claimed,) = await claim(connection)
    await call(
        connection,
        "release_jobs",
        job_ids=[claimed["id"]],
        lease_ids=[claimed["lease_id"]],
    )
    (claimed,) = await claim(connection)
    await set_clock(connection, "2 hours")
    assert await sweep(connection) == 1

    assert (await job(connection, claimed["id"]))["unique_key"] == "k"


async def live_job(connection: Connection, state: str) -> int:
    if state == "running":
        job_id: int = (await running(connection, kind="a", unique_key="k"))["id"]
        return job_id
    return await insert(connection, "a", unique_key="k", status=state)

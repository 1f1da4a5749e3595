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


async def enqueue(db: Connection, on_conflict: str, **arguments: Any) -> int:
    arguments = {"kind": "a", "unique_key": "k", **arguments}
    job_id: int = await call(db, "enqueue", on_conflict=on_conflict, **arguments)
    return job_id


@pytest.mark.parametrize("on_conflict", ["return", "replace", "raise"])
async def test_a_free_key_is_just_taken(db: Connection, on_conflict: str) -> None:
    job_id = await enqueue(db, on_conflict)

    assert (await job(db, job_id))["unique_key"] == "k"


@pytest.mark.parametrize("on_conflict", ["return", "replace", "raise"])
async def test_another_kind_has_keys_of_its_own(
    db: Connection, on_conflict: str
) -> None:
    first = await enqueue(db, on_conflict)
    second = await enqueue(db, on_conflict, kind="b")

    assert first != second


async def test_queues_share_the_keys_of_a_kind(db: Connection) -> None:
    job_id = await enqueue(db, "return", queue="one")

    assert await enqueue(db, "return", queue="two") == job_id
    assert (await job(db, job_id))["queue"] == "one"


@pytest.mark.parametrize("state", ["waiting", "pending", "running"])
async def test_return_adds_nothing_and_changes_nothing(
    db: Connection, state: str
) -> None:
    job_id = await live_job(db, state)
    before = await job(db, job_id)

    assert await enqueue(db, "return", payload={"new": 1}) == job_id
    assert await job(db, job_id) == before


@pytest.mark.parametrize("state", ["waiting", "pending", "running"])
async def test_raise_names_the_live_job(db: Connection, state: str) -> None:
    job_id = await live_job(db, state)

    with refused("PW005") as caught:
        await enqueue(db, "raise")
    assert caught.value.detail == f"job {job_id}"


@pytest.mark.parametrize("state", ["waiting", "pending"])
async def test_replace_renews_a_job_that_has_not_started(
    db: Connection, state: str
) -> None:
    job_id = await live_job(db, state)
    new = {"payload": {"new": 1}, "metadata": {"m": 1}, "priority": 9}
    new |= {"queue": "other", "max_attempts": 7}

    assert await enqueue(db, "replace", **new) == job_id
    replaced = await job(db, job_id)
    assert {column: replaced[column] for column in new} == new
    # What the old one waited for is not asked for again.
    assert replaced["status"] == "pending"


async def test_replace_moves_when_the_job_is_due(db: Connection) -> None:
    run_at = await db.fetchval("select now() + interval '1 hour'")
    job_id = await enqueue(db, "raise", run_at=run_at)
    await enqueue(db, "replace")

    assert [claimed["id"] for claimed in await claim(db)] == [job_id]


async def test_replace_takes_the_key_of_a_running_job_and_adds_beside_it(
    db: Connection,
) -> None:
    old = await running(db, kind="a", unique_key="k")
    new_id = await enqueue(db, "replace", payload={"new": 1})

    assert new_id != old["id"]
    assert (await job(db, old["id"]))["unique_key"] is None
    assert (await job(db, new_id))["payload"] == {"new": 1}
    await call(db, "complete_job", **pair(old))
    assert await status(db, new_id) == "pending"


async def test_a_job_that_gave_up_its_key_can_still_be_retried(db: Connection) -> None:
    old = await running(db, kind="a", unique_key="k")
    new_id = await enqueue(db, "replace")

    assert await call(db, "fail_job", **pair(old)) == "retry"
    assert await status(db, old["id"]) == await status(db, new_id)


@pytest.mark.parametrize("end", END)
async def test_the_end_of_a_job_frees_its_key(db: Connection, end: str) -> None:
    old = await running(db, kind="a", unique_key="k")
    await END[end](db, old)

    assert await enqueue(db, "raise") != old["id"]


async def test_a_plain_insert_of_a_taken_key_is_a_unique_violation(
    db: Connection,
) -> None:
    await insert(db, "a", unique_key="k")

    with refused("23505", by="jobs_unique_key_idx"):
        await insert(db, "a", unique_key="k")


async def test_jobs_without_a_key_are_never_the_same(db: Connection) -> None:
    assert await call(db, "enqueue", kind="a") != await call(db, "enqueue", kind="a")


async def test_a_job_with_a_key_goes_back_to_pending_by_every_way(
    db: Connection,
) -> None:
    claimed = await running(db, kind="a", unique_key="k")
    await call(db, "fail_job", **pair(claimed))
    await set_clock(db, "1 hour")
    (claimed,) = await claim(db)
    await call(
        db, "release_jobs", job_ids=[claimed["id"]], lease_ids=[claimed["lease_id"]]
    )
    (claimed,) = await claim(db)
    await set_clock(db, "2 hours")
    assert await sweep(db) == 1

    assert (await job(db, claimed["id"]))["unique_key"] == "k"


async def live_job(db: Connection, state: str) -> int:
    if state == "running":
        job_id: int = (await running(db, kind="a", unique_key="k"))["id"]
        return job_id
    return await insert(db, "a", unique_key="k", status=state)

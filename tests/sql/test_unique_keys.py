"""Kind and unique_key are unique together among live jobs."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from sql.helpers import (
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
    waits,
)
from support import Connect, Connection

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
    assert replaced["status"] == state


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


@pytest.mark.parametrize("on_conflict", ["return", "replace", "raise"])
async def test_two_open_transactions_with_the_same_key_take_turns(
    connect: Connect, connection: Connection, on_conflict: str
) -> None:
    other = await connect()
    first = connection.transaction()
    await first.start()
    job_id = await enqueue(connection, "raise", payload={"by": "first"})
    task = asyncio.create_task(enqueue(other, on_conflict, payload={"by": "second"}))
    await waits(other, task, connection)
    await first.commit()

    if on_conflict == "raise":
        with refused("PW005") as caught:
            await task
        assert caught.value.detail == f"job {job_id}"
    else:
        assert await task == job_id
    by = "second" if on_conflict == "replace" else "first"
    assert (await job(connection, job_id))["payload"] == {"by": by}


async def test_a_key_whose_transaction_rolls_back_goes_to_who_waited(
    connect: Connect, connection: Connection
) -> None:
    other = await connect()
    first = connection.transaction()
    await first.start()
    job_id = await enqueue(connection, "raise")
    task = asyncio.create_task(enqueue(other, "raise"))
    await waits(other, task, connection)
    await first.rollback()

    assert await task != job_id


async def test_replace_waits_for_a_claim_and_then_adds_beside_it(
    connect: Connect, connection: Connection
) -> None:
    other = await connect()
    job_id = await enqueue(connection, "raise")
    transaction = connection.transaction()
    await transaction.start()
    (claimed,) = await claim(connection)
    task = asyncio.create_task(enqueue(other, "replace"))
    await waits(other, task, connection)
    await transaction.commit()

    assert claimed["id"] == job_id != await task
    assert (await job(connection, job_id))["unique_key"] is None


async def test_replace_waits_for_who_has_the_job_locked_before_it_looks(
    connect: Connect, connection: Connection
) -> None:
    other = await connect()
    job_id = await enqueue(connection, "raise")
    before = (await job(connection, job_id))["payload"]
    transaction = connection.transaction()
    await transaction.start()
    await connection.execute("select from pgwake.jobs_live for update")
    task = asyncio.create_task(enqueue(other, "replace", payload={"new": 1}))
    await waits(other, task, connection)
    await claim(connection)
    await transaction.commit()

    assert await task != job_id
    assert (await job(connection, job_id))["payload"] == before


async def test_replace_adds_when_the_job_ends_under_its_eyes(
    connect: Connect, connection: Connection
) -> None:
    other = await connect()
    old = await running(connection, kind="a", unique_key="k")
    transaction = connection.transaction()
    await transaction.start()
    await call(connection, "complete_job", **pair(old))
    task = asyncio.create_task(enqueue(other, "replace"))
    await waits(other, task, connection)
    await transaction.commit()

    assert await status(connection, await task) == "pending"
    assert await status(connection, old["id"]) == "completed"


async def test_a_conflict_in_repeatable_read_is_a_serialization_failure(
    connect: Connect, connection: Connection
) -> None:
    other = await connect()
    async with other.transaction(isolation="repeatable_read"):
        await other.fetchval("select 1 from pgwake.jobs")
        await enqueue(connection, "raise")
        with refused("40001"):
            await enqueue(other, "return")


async def live_job(connection: Connection, state: str) -> int:
    if state == "running":
        job_id: int = (await running(connection, kind="a", unique_key="k"))["id"]
        return job_id
    return await insert(connection, "a", unique_key="k", status=state)

"""Two sessions that want the same key at the same time."""

import asyncio
from typing import Any

import pytest

from support import Connection
from support.sql.helpers import (
    blocking,
    call,
    claim,
    job,
    pair,
    refused,
    rolled_back,
    running,
    status,
    waits,
)


async def enqueue(db: Connection, on_conflict: str, **arguments: Any) -> int:
    arguments = {"kind": "a", "unique_key": "k", **arguments}
    job_id: int = await call(db, "enqueue", on_conflict=on_conflict, **arguments)
    return job_id


@pytest.mark.parametrize("on_conflict", ["return", "replace", "raise"])
async def test_two_open_transactions_with_the_same_key_take_turns(
    db: Connection, other: Connection, on_conflict: str
) -> None:
    async with blocking(
        db, other, enqueue(other, on_conflict, payload={"by": "second"})
    ) as task:
        job_id = await enqueue(db, "raise", payload={"by": "first"})

    if on_conflict == "raise":
        with refused("PW005") as caught:
            await task
        assert caught.value.detail == f"job {job_id}"
    else:
        assert await task == job_id
    by = "second" if on_conflict == "replace" else "first"
    assert (await job(db, job_id))["payload"] == {"by": by}


async def test_a_key_whose_transaction_rolls_back_goes_to_who_waited(
    db: Connection, other: Connection
) -> None:
    async with rolled_back(db):
        job_id = await enqueue(db, "raise")
        task = asyncio.create_task(enqueue(other, "raise"))
        await waits(other, task, db)

    assert await task != job_id


async def test_replace_waits_for_a_claim_and_then_adds_beside_it(
    db: Connection, other: Connection
) -> None:
    job_id = await enqueue(db, "raise")
    async with blocking(db, other, enqueue(other, "replace")) as task:
        (claimed,) = await claim(db)

    assert claimed["id"] == job_id != await task
    assert (await job(db, job_id))["unique_key"] is None


async def test_replace_waits_for_who_has_the_job_locked_before_it_looks(
    db: Connection, other: Connection
) -> None:
    job_id = await enqueue(db, "raise")
    before = (await job(db, job_id))["payload"]
    transaction = db.transaction()
    await transaction.start()
    await db.execute("select from pgwake.jobs_live for update")
    task = asyncio.create_task(enqueue(other, "replace", payload={"new": 1}))
    await waits(other, task, db)
    await claim(db)
    await transaction.commit()

    assert await task != job_id
    assert (await job(db, job_id))["payload"] == before


async def test_replace_adds_when_the_job_ends_under_its_eyes(
    db: Connection, other: Connection
) -> None:
    old = await running(db, kind="a", unique_key="k")
    async with blocking(db, other, enqueue(other, "replace")) as task:
        await call(db, "complete_job", **pair(old))

    assert await status(db, await task) == "pending"
    assert await status(db, old["id"]) == "completed"


async def test_a_conflict_in_repeatable_read_is_a_serialization_failure(
    db: Connection, other: Connection
) -> None:
    async with other.transaction(isolation="repeatable_read"):
        await other.fetchval("select 1 from pgwake.jobs")
        await enqueue(db, "raise")
        with refused("40001"):
            await enqueue(other, "return")

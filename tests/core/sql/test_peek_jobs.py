"""peek_jobs: what a claim would take, without taking it."""

from datetime import timedelta
from typing import Any

import pytest

from support import Connection
from support.sql.helpers import (
    call,
    claim,
    claim_batch,
    insert,
    insert_many,
    refused,
    rows,
    set_clock,
    sweep,
)


async def peek(db: Connection, **arguments: Any) -> list[int]:
    return [row["id"] for row in await rows(db, "peek_jobs", **arguments)]


async def test_it_shows_the_order_in_which_jobs_are_claimed(db: Connection) -> None:
    for priority in (0, 5, -5, 5, 0, 100):
        await insert(db, priority=priority)
    await insert(db, queue="other", priority=9)
    seen = await peek(db)

    assert len(seen) == 6
    assert (await claim_batch(db, 10))["ids"] == seen


async def test_no_more_are_shown_than_asked_for_and_the_first_of_them(
    db: Connection,
) -> None:
    await insert_many(db, 20)
    first = await insert(db, priority=1)

    assert await peek(db, count=3) == [first, 1, 2]
    assert len(await peek(db)) == 10


async def test_jobs_that_are_not_due_or_wait_are_not_shown(db: Connection) -> None:
    await call(db, "enqueue", kind="a", delay=timedelta(minutes=1))
    await insert(db, concurrency_key="k")
    assert await peek(db) == []

    await set_clock(db, "2 min")
    assert await peek(db) == [1]


async def test_suspects_come_last(db: Connection) -> None:
    suspect = await insert(db, priority=9)
    for offset in ("1 hour", "2 hours"):
        assert await claim(db)
        await sweep(db, offset)
    other = await insert(db)

    assert await peek(db) == [other, suspect]


async def test_nothing_is_changed_and_nobody_is_waited_for(
    db: Connection, other: Connection
) -> None:
    job_id = await insert(db)
    async with other.transaction(), db.transaction(readonly=True):
        await other.execute("select from pgwake.jobs_live for update")
        assert await peek(db) == [job_id]
    assert len(await claim(db)) == 1


async def test_a_row_tells_what_an_operator_asks(db: Connection) -> None:
    await insert(db, "mail", priority=3, payload={"to": "a"})
    (row,) = await rows(db, "peek_jobs")

    assert (row["kind"], row["priority"], row["payload"]) == ("mail", 3, {"to": "a"})
    assert (row["attempt"], row["crash_count"], row["bounce_count"]) == (0, 0, 0)


@pytest.mark.parametrize(
    "arguments", [{"queue": None}, {"count": None}, {"count": 0}, {"count": 1001}]
)
async def test_what_can_not_be_meant_is_refused(
    db: Connection, arguments: dict[str, Any]
) -> None:
    with refused("PW003"):
        await peek(db, **arguments)

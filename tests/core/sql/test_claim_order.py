"""Priority descending, then run_at, then id."""

from datetime import timedelta
from typing import Any

import pytest

from support import Connection
from support.sql.helpers import (
    claim_batch,
    claimed_ids,
    insert,
    job_in,
    rows,
    set_clock,
)

SECOND = timedelta(seconds=1)


async def due(db: Connection, seconds_ago: int, **columns: Any) -> int:
    run_at = await db.fetchval("select now() - $1::interval", seconds_ago * SECOND)
    return await insert(db, run_at=run_at, **columns)


@pytest.mark.parametrize("count", [1, 2, 100])
async def test_jobs_come_by_priority_then_time_then_id(
    db: Connection, count: int
) -> None:
    async with db.transaction():  # so that some have the very same time
        low = await due(db, 9, priority=-100)
        late = await due(db, 1)
        early = await due(db, 5)
        second = await due(db, 5)
        high = await due(db, 1, priority=100)

    taken: list[int] = []
    while ids := await claimed_ids(db, count):
        taken += ids
    assert taken == [high, early, second, late, low]


async def test_plain_inserts_come_in_the_order_of_their_ids(db: Connection) -> None:
    await db.execute(
        "insert into pgwake.jobs (kind) select 'a' from generate_series(1, 50)"
    )
    ids = await claimed_ids(db)

    assert len(ids) == 50
    assert ids == sorted(ids)


async def test_a_job_is_not_claimed_before_its_time(db: Connection) -> None:
    run_at = await db.fetchval("select now() + interval '1 hour'")
    job_id = await insert(db, run_at=run_at)

    assert await claimed_ids(db) == []
    await set_clock(db, "59 minutes")
    assert await claimed_ids(db) == []
    await set_clock(db, "1 hour")
    assert await claimed_ids(db) == [job_id]


async def test_a_scheduled_job_of_higher_priority_does_not_hold_up_others(
    db: Connection,
) -> None:
    run_at = await db.fetchval("select now() + interval '1 hour'")
    await insert(db, run_at=run_at, priority=100)
    job_id = await insert(db)

    assert await claimed_ids(db, 1) == [job_id]


async def test_a_job_comes_from_its_own_queue_only(db: Connection) -> None:
    await insert(db, queue="other")
    job_id = await insert(db)

    assert await claimed_ids(db) == [job_id]


@pytest.mark.parametrize(
    "state", ["waiting", "running", "completed", "failed", "cancelled"]
)
async def test_only_pending_jobs_are_claimed(db: Connection, state: str) -> None:
    await job_in(db, state)

    assert await claimed_ids(db) == []


@pytest.mark.parametrize("count", [2, 3, 100])
async def test_at_most_one_that_crashed_once_comes_with_a_claim(
    db: Connection, count: int
) -> None:
    crashed = [await insert(db, crash_count=1) for _ in range(3)]
    fresh = [await insert(db) for _ in range(2)]

    assert await claimed_ids(db, count) == [crashed[0], *fresh[: count - 1]]


async def test_those_that_crashed_once_come_one_by_one(db: Connection) -> None:
    crashed = [await insert(db, crash_count=1) for _ in range(3)]

    for job_id in crashed:
        assert await claimed_ids(db) == [job_id]
    assert await claimed_ids(db) == []


@pytest.mark.parametrize("count", [1, 2])
async def test_a_job_that_crashed_once_waits_for_its_turn_by_priority(
    db: Connection, count: int
) -> None:
    await insert(db, crash_count=1, priority=-1)
    higher = [await insert(db) for _ in range(2)]

    assert await claimed_ids(db, count) == higher[:count]


async def test_a_job_that_crashed_once_waits_for_its_turn_by_time(
    db: Connection,
) -> None:
    crashed = await due(db, 5, crash_count=1)
    first, last = await due(db, 9), await due(db, 1)

    assert await claimed_ids(db, 1) == [first]
    assert await claimed_ids(db, 1) == [crashed]
    assert await claimed_ids(db, 1) == [last]


async def test_among_those_that_crashed_once_priority_decides(db: Connection) -> None:
    low = await due(db, 9, crash_count=1)
    high = await due(db, 1, crash_count=1, priority=1)

    assert await claimed_ids(db) == [high]
    assert await claimed_ids(db) == [low]


async def test_a_job_that_crashed_once_is_placed_by_its_order_in_the_answer(
    db: Connection,
) -> None:
    first = await due(db, 9)
    crashed = await due(db, 5, crash_count=1)
    last = await due(db, 1)

    assert await claimed_ids(db) == [first, crashed, last]


@pytest.mark.parametrize("crash_count", [2, 3, 99])
async def test_suspects_are_left_out_of_ordinary_claims(
    db: Connection, crash_count: int
) -> None:
    await insert(db, crash_count=crash_count)

    assert await claimed_ids(db) == []
    assert (await claim_batch(db, 100))["next_run_at"] is None


@pytest.mark.parametrize("count", [1, 100])
async def test_a_claim_of_suspects_takes_nothing_else(
    db: Connection, count: int
) -> None:
    await insert(db)
    await insert(db, crash_count=1)
    low = await insert(db, crash_count=2)
    high = await insert(db, crash_count=4, priority=1)

    taken = await claim_batch(db, count, suspects=True)
    assert taken["ids"] == [high, low][:count]


async def test_a_claim_of_suspects_takes_no_more_than_asked(db: Connection) -> None:
    suspects = [await insert(db, crash_count=2) for _ in range(3)]

    taken = await claim_batch(db, 2, suspects=True)
    assert taken["ids"] == suspects[:2]


async def test_claim_next_job_takes_suspects_last(db: Connection) -> None:
    suspect = await insert(db, crash_count=2, priority=100)
    fresh = await insert(db)
    crashed = await insert(db, crash_count=1)

    taken = []
    while claimed := await rows(db, "claim_next_job"):
        taken += [job["id"] for job in claimed]
    assert taken == [fresh, crashed, suspect]

"""Priority descending, then run_at, then id."""

from datetime import timedelta
from typing import Any

import pytest

from support import Connection
from support.sql.helpers import claim, claim_batch, insert, job_in, rows, set_clock

SECOND = timedelta(seconds=1)


async def due(connection: Connection, seconds_ago: int, **columns: Any) -> int:
    run_at = await connection.fetchval(
        "select now() - $1::interval", seconds_ago * SECOND
    )
    return await insert(connection, run_at=run_at, **columns)


async def claimed_ids(connection: Connection, count: int = 100) -> list[int]:
    return [job["id"] for job in await claim(connection, count)]


@pytest.mark.parametrize("count", [1, 2, 100])
async def test_jobs_come_by_priority_then_time_then_id(
    connection: Connection, count: int
) -> None:
    async with connection.transaction():  # so that some have the very same time
        low = await due(connection, 9, priority=-100)
        late = await due(connection, 1)
        early = await due(connection, 5)
        second = await due(connection, 5)
        high = await due(connection, 1, priority=100)

    taken: list[int] = []
    while ids := await claimed_ids(connection, count):
        taken += ids
    assert taken == [high, early, second, late, low]


async def test_plain_inserts_come_in_the_order_of_their_ids(
    connection: Connection,
) -> None:
    await connection.execute(
        "insert into pgwake.jobs (kind) select 'a' from generate_series(1, 50)"
    )
    ids = await claimed_ids(connection)

    assert len(ids) == 50
    assert ids == sorted(ids)


async def test_a_job_is_not_claimed_before_its_time(connection: Connection) -> None:
    run_at = await connection.fetchval("select now() + interval '1 hour'")
    job_id = await insert(connection, run_at=run_at)

    assert await claimed_ids(connection) == []
    await set_clock(connection, "59 minutes")
    assert await claimed_ids(connection) == []
    await set_clock(connection, "1 hour")
    assert await claimed_ids(connection) == [job_id]


async def test_a_scheduled_job_of_higher_priority_does_not_hold_up_others(
    connection: Connection,
) -> None:
    run_at = await connection.fetchval("select now() + interval '1 hour'")
    await insert(connection, run_at=run_at, priority=100)
    job_id = await insert(connection)

    assert await claimed_ids(connection, 1) == [job_id]


async def test_a_job_comes_from_its_own_queue_only(connection: Connection) -> None:
    await insert(connection, queue="other")
    job_id = await insert(connection)

    assert await claimed_ids(connection) == [job_id]


@pytest.mark.parametrize(
    "state", ["waiting", "running", "completed", "failed", "cancelled"]
)
async def test_only_pending_jobs_are_claimed(
    connection: Connection, state: str
) -> None:
    await job_in(connection, state)

    assert await claimed_ids(connection) == []


@pytest.mark.parametrize("count", [2, 3, 100])
async def test_at_most_one_that_crashed_once_comes_with_a_claim(
    connection: Connection, count: int
) -> None:
    crashed = [await insert(connection, crash_count=1) for _ in range(3)]
    fresh = [await insert(connection) for _ in range(2)]

    assert await claimed_ids(connection, count) == [crashed[0], *fresh[: count - 1]]


async def test_those_that_crashed_once_come_one_by_one(connection: Connection) -> None:
    crashed = [await insert(connection, crash_count=1) for _ in range(3)]

    for job_id in crashed:
        assert await claimed_ids(connection) == [job_id]
    assert await claimed_ids(connection) == []


@pytest.mark.parametrize("count", [1, 2])
async def test_a_job_that_crashed_once_waits_for_its_turn_by_priority(
    connection: Connection, count: int
) -> None:
    await insert(connection, crash_count=1, priority=-1)
    higher = [await insert(connection) for _ in range(2)]

    assert await claimed_ids(connection, count) == higher[:count]


async def test_a_job_that_crashed_once_waits_for_its_turn_by_time(
    connection: Connection,
) -> None:
    crashed = await due(connection, 5, crash_count=1)
    first, last = await due(connection, 9), await due(connection, 1)

    assert await claimed_ids(connection, 1) == [first]
    assert await claimed_ids(connection, 1) == [crashed]
    assert await claimed_ids(connection, 1) == [last]


async def test_among_those_that_crashed_once_priority_decides(
    connection: Connection,
) -> None:
    low = await due(connection, 9, crash_count=1)
    high = await due(connection, 1, crash_count=1, priority=1)

    assert await claimed_ids(connection) == [high]
    assert await claimed_ids(connection) == [low]


async def test_a_job_that_crashed_once_is_placed_by_its_order_in_the_answer(
    connection: Connection,
) -> None:
    first = await due(connection, 9)
    crashed = await due(connection, 5, crash_count=1)
    last = await due(connection, 1)

    assert await claimed_ids(connection) == [first, crashed, last]


@pytest.mark.parametrize("crash_count", [2, 3, 99])
async def test_suspects_are_left_out_of_ordinary_claims(
    connection: Connection, crash_count: int
) -> None:
    await insert(connection, crash_count=crash_count)

    assert await claimed_ids(connection) == []
    assert (await claim_batch(connection, 100))["next_run_at"] is None


@pytest.mark.parametrize("count", [1, 100])
async def test_a_claim_of_suspects_takes_nothing_else(
    connection: Connection, count: int
) -> None:
    await insert(connection)
    await insert(connection, crash_count=1)
    low = await insert(connection, crash_count=2)
    high = await insert(connection, crash_count=4, priority=1)

    taken = await claim_batch(connection, count, suspects=True)
    assert taken["ids"] == [high, low][:count]


async def test_a_claim_of_suspects_takes_no_more_than_asked(
    connection: Connection,
) -> None:
    suspects = [await insert(connection, crash_count=2) for _ in range(3)]

    taken = await claim_batch(connection, 2, suspects=True)
    assert taken["ids"] == suspects[:2]


async def test_claim_next_job_takes_suspects_last(connection: Connection) -> None:
    suspect = await insert(connection, crash_count=2, priority=100)
    fresh = await insert(connection)
    crashed = await insert(connection, crash_count=1)

    taken = []
    while claimed := await rows(connection, "claim_next_job"):
        taken += [job["id"] for job in claimed]
    assert taken == [fresh, crashed, suspect]

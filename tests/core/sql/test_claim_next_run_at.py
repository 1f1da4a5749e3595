"""When to come again, as a claim tells it: next_run_at, and pauses."""

from datetime import timedelta
from typing import Any

import pytest

from support import Connect, Connection
from support.sql.helpers import (
    call,
    claim,
    claim_batch,
    insert,
    insert_many,
    job,
    rolled_back,
    row_locked,
    set_clock,
    set_queue,
)

HOUR = timedelta(hours=1)
CLAIMS = [(0, False), (1, False), (2, True)]


async def later(db: Connection, by: timedelta = HOUR, **columns: Any) -> Any:
    """Insert a job that is due that much later, and return when."""
    run_at = await db.fetchval("select now() + $1::interval", by)
    await insert(db, run_at=run_at, **columns)
    return run_at


@pytest.mark.parametrize("hours", [(1, 2, 3), (2, 1, 3), (3, 2, 1)])
async def test_next_run_at_is_the_earliest_of_all_priorities(
    db: Connection, hours: tuple[int, ...]
) -> None:
    times = [
        await later(db, hour * HOUR, priority=priority)
        for hour, priority in zip(hours, (9, 0, -9), strict=True)
    ]
    job_id = await insert(db)

    row = await claim_batch(db, 2)
    assert (row["ids"], row["next_run_at"]) == ([job_id], min(times))


@pytest.mark.parametrize("crash_count", [0, 1])
async def test_next_run_at_is_that_of_a_job_that_crashed_too(
    db: Connection, crash_count: int
) -> None:
    run_at = await later(db, crash_count=crash_count)
    await later(db, 2 * HOUR, crash_count=1)

    assert (await claim_batch(db))["next_run_at"] == run_at


async def test_next_run_at_of_suspects_is_theirs(db: Connection) -> None:
    await later(db, 1 * HOUR)
    await later(db, 1 * HOUR, crash_count=1)
    run_at = await later(db, 2 * HOUR, crash_count=2)

    assert (await claim_batch(db, suspects=True))["next_run_at"] == run_at


@pytest.mark.parametrize(("crash_count", "suspects"), CLAIMS)
@pytest.mark.parametrize("held_by", ["a lock", "a claim", "an end"])
async def test_a_due_job_that_somebody_has_locked_is_told(
    other: Connection, db: Connection, crash_count: int, suspects: bool, held_by: str
) -> None:
    job_id = await insert(db, crash_count=crash_count)
    await later(db, priority=9, crash_count=crash_count)
    arguments: dict[str, Any] = {"suspects": suspects}
    async with rolled_back(other):
        if held_by == "a lock":
            await other.execute("select from pgwake.jobs_live for no key update")
        elif held_by == "a claim":
            assert (await claim_batch(other, **arguments))["ids"] == [job_id]
        else:
            await call(other, "cancel_job", job_id=job_id)

        row = await claim_batch(db, 2, **arguments)
        assert row["ids"] == []
        assert row["next_run_at"] <= row["claimed_at"]
    assert (await claim_batch(db, **arguments))["ids"] == [job_id]


@pytest.mark.parametrize(("crash_count", "suspects"), CLAIMS)
async def test_a_due_job_that_somebody_has_claimed_is_told_no_more(
    connect: Connect, db: Connection, crash_count: int, suspects: bool
) -> None:
    await insert(db, crash_count=crash_count)
    run_at = await later(db, priority=9, crash_count=crash_count)
    arguments: dict[str, Any] = {"suspects": suspects}
    assert len((await claim_batch(await connect(), **arguments))["ids"]) == 1

    row = await claim_batch(db, 2, **arguments)
    assert row["next_run_at"] == run_at


async def test_a_claim_that_got_some_tells_of_those_it_could_not_get(
    db: Connection, other: Connection
) -> None:
    locked = await insert(db)
    job_id = await insert(db)
    async with row_locked(other, locked):
        row = await claim_batch(db, 2)
        assert row["ids"] == [job_id]
        assert row["next_run_at"] == (await job(db, locked))["run_at"]


async def test_a_locked_job_of_any_priority_is_told(
    db: Connection, other: Connection
) -> None:
    ids = [await insert(db, priority=priority) for priority in (9, 0, -9)]
    for locked in ids:
        async with row_locked(other, locked), rolled_back(db):
            row = await claim_batch(db, 3)
            assert locked not in row["ids"]
            assert row["next_run_at"] == (await job(db, locked))["run_at"]


async def test_a_pause_is_told_before_a_locked_job(
    db: Connection, other: Connection
) -> None:
    await insert(db)
    until = await db.fetchval("select now() + interval '1 hour'")
    await set_queue(db, paused_until=until)
    async with other.transaction():
        await other.execute("select from pgwake.jobs_live for update")
        assert (await claim_batch(db))["next_run_at"] == until


async def test_a_job_that_is_not_committed_yet_is_not_told(
    db: Connection, other: Connection
) -> None:
    async with other.transaction():
        await insert(other)
        assert (await claim_batch(db))["next_run_at"] is None


async def test_a_second_job_that_crashed_once_is_due_at_once(db: Connection) -> None:
    await insert(db, crash_count=1)
    second = await insert(db, crash_count=1)

    row = await claim_batch(db, 10)
    assert row["next_run_at"] == (await job(db, second))["run_at"]


@pytest.mark.parametrize("count", [1, 2])
async def test_a_full_claim_says_nothing_of_what_comes_next(
    db: Connection, count: int
) -> None:
    await later(db, priority=9)
    await later(db, crash_count=1)
    await insert_many(db, 2)

    row = await claim_batch(db, count)
    assert (len(row["ids"]), row["next_run_at"]) == (count, None)


async def test_a_job_is_due_at_the_very_instant_of_next_run_at(db: Connection) -> None:
    await later(db)
    async with db.transaction():  # the clock stands still
        next_run_at = (await claim_batch(db))["next_run_at"]
        until = next_run_at - await db.fetchval("select now()")
        await set_clock(db, f"{until.total_seconds() - 1e-6:.6f} s")
        assert await claim(db) == []
        await set_clock(db, f"{until.total_seconds():.6f} s")
        assert len(await claim(db)) == 1


async def test_a_paused_queue_says_when_its_pause_ends(db: Connection) -> None:
    job_id = await insert(db)
    async with db.transaction():  # the clock stands still
        until = await db.fetchval("select now() + interval '1 hour'")
        await set_queue(db, paused_until=until)
        await set_clock(db, "59 minutes 59.999999 seconds")
        row = await claim_batch(db)
        assert (row["ids"], row["next_run_at"]) == ([], until)
        await set_clock(db, "1 hour")
        assert (await claim_batch(db))["ids"] == [job_id]


@pytest.mark.parametrize("suspects", [False, True])
async def test_a_queue_paused_without_end_gives_nothing(
    db: Connection, suspects: bool
) -> None:
    await db.execute("insert into pgwake.queues values ('default', 'infinity')")
    await insert(db, crash_count=2 if suspects else 0)

    row = await claim_batch(db, suspects=suspects)
    assert (row["ids"], row["next_run_at"]) == ([], None)

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
    pair,
    rolled_back,
    row_locked,
    set_clock,
    set_queue,
)

HOUR = timedelta(hours=1)
CLAIMS = [(0, False), (1, False), (2, True)]


async def later(connection: Connection, by: timedelta = HOUR, **columns: Any) -> Any:
    """Insert a job that is due that much later, and return when."""
    run_at = await connection.fetchval("select now() + $1::interval", by)
    await insert(connection, run_at=run_at, **columns)
    return run_at


@pytest.mark.parametrize("hours", [(1, 2, 3), (2, 1, 3), (3, 2, 1)])
async def test_next_run_at_is_the_earliest_of_all_priorities(
    connection: Connection, hours: tuple[int, ...]
) -> None:
    times = [
        await later(connection, hour * HOUR, priority=priority)
        for hour, priority in zip(hours, (9, 0, -9), strict=True)
    ]
    job_id = await insert(connection)

    row = await claim_batch(connection, 2)
    assert (row["ids"], row["next_run_at"]) == ([job_id], min(times))


@pytest.mark.parametrize("crash_count", [0, 1])
async def test_next_run_at_is_that_of_a_job_that_crashed_too(
    connection: Connection, crash_count: int
) -> None:
    run_at = await later(connection, crash_count=crash_count)
    await later(connection, 2 * HOUR, crash_count=1)

    assert (await claim_batch(connection))["next_run_at"] == run_at


async def test_next_run_at_of_suspects_is_theirs(connection: Connection) -> None:
    await later(connection, 1 * HOUR)
    await later(connection, 1 * HOUR, crash_count=1)
    run_at = await later(connection, 2 * HOUR, crash_count=2)

    assert (await claim_batch(connection, suspects=True))["next_run_at"] == run_at


@pytest.mark.parametrize(("crash_count", "suspects"), CLAIMS)
@pytest.mark.parametrize("held_by", ["a lock", "a claim", "an end"])
async def test_a_due_job_that_somebody_has_locked_is_told(
    other: Connection,
    connection: Connection,
    crash_count: int,
    suspects: bool,
    held_by: str,
) -> None:
    job_id = await insert(connection, crash_count=crash_count)
    await later(connection, priority=9, crash_count=crash_count)
    arguments: dict[str, Any] = {"suspects": suspects}
    async with rolled_back(other):
        if held_by == "a lock":
            await other.execute("select from pgwake.jobs_live for no key update")
        elif held_by == "a claim":
            assert (await claim_batch(other, **arguments))["ids"] == [job_id]
        else:
            await call(other, "cancel_job", job_id=job_id)

        row = await claim_batch(connection, 2, **arguments)
        assert row["ids"] == []
        assert row["next_run_at"] <= row["claimed_at"]
    assert (await claim_batch(connection, **arguments))["ids"] == [job_id]


@pytest.mark.parametrize(("crash_count", "suspects"), CLAIMS)
async def test_a_due_job_that_somebody_has_claimed_is_told_no_more(
    connect: Connect, connection: Connection, crash_count: int, suspects: bool
) -> None:
    await insert(connection, crash_count=crash_count)
    run_at = await later(connection, priority=9, crash_count=crash_count)
    arguments: dict[str, Any] = {"suspects": suspects}
    assert len((await claim_batch(await connect(), **arguments))["ids"]) == 1

    row = await claim_batch(connection, 2, **arguments)
    assert row["next_run_at"] == run_at


async def test_a_claim_that_got_some_tells_of_those_it_could_not_get(
    connection: Connection, other: Connection
) -> None:
    locked = await insert(connection)
    job_id = await insert(connection)
    async with row_locked(other, locked):
        row = await claim_batch(connection, 2)
        assert row["ids"] == [job_id]
        assert row["next_run_at"] == (await job(connection, locked))["run_at"]


async def test_a_locked_job_of_any_priority_is_told(
    connection: Connection, other: Connection
) -> None:
    ids = [await insert(connection, priority=priority) for priority in (9, 0, -9)]
    for locked in ids:
        async with row_locked(other, locked), rolled_back(connection):
            row = await claim_batch(connection, 3)
            assert locked not in row["ids"]
            assert row["next_run_at"] == (await job(connection, locked))["run_at"]


async def test_a_pause_is_told_before_a_locked_job(
    connection: Connection, other: Connection
) -> None:
    await insert(connection)
    until = await connection.fetchval("select now() + interval '1 hour'")
    await set_queue(connection, paused_until=until)
    async with other.transaction():
        await other.execute("select from pgwake.jobs_live for update")
        assert (await claim_batch(connection))["next_run_at"] == until


async def test_a_job_that_is_not_committed_yet_is_not_told(
    connection: Connection, other: Connection
) -> None:
    async with other.transaction():
        await insert(other)
        assert (await claim_batch(connection))["next_run_at"] is None


async def test_a_second_job_that_crashed_once_is_due_at_once(
    connection: Connection,
) -> None:
    await insert(connection, crash_count=1)
    second = await insert(connection, crash_count=1)

    row = await claim_batch(connection, 10)
    assert row["next_run_at"] == (await job(connection, second))["run_at"]


@pytest.mark.parametrize("count", [1, 2])
async def test_a_full_claim_says_nothing_of_what_comes_next(
    connection: Connection, count: int
) -> None:
    await later(connection, priority=9)
    await later(connection, crash_count=1)
    await insert_many(connection, 2)

    row = await claim_batch(connection, count)
    assert (len(row["ids"]), row["next_run_at"]) == (count, None)


async def test_a_job_is_due_at_the_very_instant_of_next_run_at(
    connection: Connection,
) -> None:
    await later(connection)
    async with connection.transaction():  # the clock stands still
        next_run_at = (await claim_batch(connection))["next_run_at"]
        until = next_run_at - await connection.fetchval("select now()")
        await set_clock(connection, f"{until.total_seconds() - 1e-6:.6f} s")
        assert await claim(connection) == []
        await set_clock(connection, f"{until.total_seconds():.6f} s")
        assert len(await claim(connection)) == 1


async def test_a_paused_queue_says_when_its_pause_ends(connection: Connection) -> None:
    job_id = await insert(connection)
    async with connection.transaction():  # the clock stands still
        until = await connection.fetchval("select now() + interval '1 hour'")
        await set_queue(connection, paused_until=until)
        await set_clock(connection, "59 minutes 59.999999 seconds")
        row = await claim_batch(connection)
        assert (row["ids"], row["next_run_at"]) == ([], until)
        await set_clock(connection, "1 hour")
        assert (await claim_batch(connection))["ids"] == [job_id]


@pytest.mark.parametrize("suspects", [False, True])
async def test_a_queue_paused_without_end_gives_nothing(
    connection: Connection, suspects: bool
) -> None:
    await connection.execute("insert into pgwake.queues values ('default', 'infinity')")
    await insert(connection, crash_count=2 if suspects else 0)

    row = await claim_batch(connection, suspects=suspects)
    assert (row["ids"], row["next_run_at"]) == ([], None)


async def test_a_pause_stops_no_job_that_runs(connection: Connection) -> None:
    await insert(connection)
    (claimed,) = await claim(connection)
    await connection.execute("insert into pgwake.queues values ('default', 'infinity')")

    await call(connection, "complete_job", **pair(claimed))

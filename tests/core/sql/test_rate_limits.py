"""Rate limits: how many claims there are in any span of time."""

import asyncio
from datetime import datetime, timedelta
from itertools import pairwise

import pytest

from support import Connect, Connection
from support.sql.helpers import (
    Row,
    call,
    claim,
    claim_batch,
    insert,
    insert_many,
    job,
    pairs,
    refused,
    rolled_back,
    set_clock,
    set_queue,
)

STARTED = """
select started_at from pgwake.jobs where started_at is not null order by started_at
"""


def exceeds(starts: list[datetime], rate: float, burst: int) -> list[tuple[int, int]]:
    """The spans, by place of their first and last start, in which were too many."""
    return [
        (first, last)
        for first in range(len(starts))
        for last in range(first, len(starts))
        if last - first + 1
        > burst + rate * (starts[last] - starts[first]).total_seconds() + 1e-5
    ]


async def limited(db: Connection, rate: float, burst: int | None) -> None:
    await set_queue(db, rate_limit=rate, rate_burst=burst)


async def test_a_full_bucket_gives_its_burst_at_once(db: Connection) -> None:
    await limited(db, 0.01, 3)
    await insert_many(db, 5)
    row = await claim_batch(db, 100)
    assert len(row["ids"]) == 3
    assert await claim(db) == []


@pytest.mark.parametrize(("rate", "burst"), [(0.5, 1), (7.5, 8), (100, 100)])
async def test_by_default_the_burst_is_a_seconds_worth_at_least_one(
    db: Connection, rate: float, burst: int
) -> None:
    await limited(db, rate, None)
    await insert_many(db, 200)
    assert len((await claim_batch(db, 200))["ids"]) == burst


async def test_what_is_left_is_for_the_next_token(db: Connection) -> None:
    await limited(db, 0.01, 2)
    await insert_many(db, 5)
    row = await claim_batch(db, 100)
    until = row["next_run_at"] - row["claimed_at"]
    assert timedelta(seconds=99) < until < timedelta(seconds=101)

    again = await claim_batch(db, 100)
    assert again["ids"] == []
    assert abs(again["next_run_at"] - row["next_run_at"]) < timedelta(milliseconds=1)
    seconds = (again["next_run_at"] - again["claimed_at"]).total_seconds()
    await set_clock(db, f"{seconds} s")
    assert len(await claim(db, 100)) == 1


async def test_tokens_that_are_not_used_stay(db: Connection) -> None:
    await limited(db, 0.01, 5)
    await insert_many(db, 2)
    assert len((await claim_batch(db, 100))["ids"]) == 2
    await insert_many(db, 9)
    assert len((await claim_batch(db, 100))["ids"]) == 3


async def test_the_bucket_fills_up_to_the_burst(db: Connection) -> None:
    await limited(db, 1 / 60, 4)
    await insert_many(db, 20)
    assert len(await claim(db, 100)) == 4
    await set_clock(db, "2 minutes")
    assert len(await claim(db, 100)) == 2
    await set_clock(db, "1 hour")
    assert len(await claim(db, 100)) == 4


async def test_a_clock_that_is_put_back_fills_nothing_and_stops_nothing(
    db: Connection,
) -> None:
    await set_clock(db, "1 day")
    await limited(db, 1 / 60, 2)
    await insert_many(db, 20)
    await db.execute("update pgwake.jobs_live set run_at = '2000-01-01 UTC'")
    assert len(await claim(db, 100)) == 2
    await set_clock(db, "0")
    assert await claim(db, 100) == []
    await set_clock(db, "90 seconds")
    assert len(await claim(db, 100)) == 1


async def test_a_claim_that_rolls_back_gives_its_tokens_back(db: Connection) -> None:
    await limited(db, 0.01, 2)
    await insert_many(db, 5)
    async with rolled_back(db):
        assert len(await claim(db, 100)) == 2
    assert len(await claim(db, 100)) == 2


async def test_while_another_claims_there_is_none(
    db: Connection, other: Connection
) -> None:
    await limited(db, 0.01, 5)
    await insert_many(db, 5)
    async with db.transaction():
        assert len(await claim(db)) == 1
        row = await claim_batch(other)
        assert row["ids"] == []
        assert row["next_run_at"] <= row["claimed_at"], "look again soon"
    assert len(await claim(other)) == 1


async def test_jobs_that_are_due_later_say_when(db: Connection) -> None:
    await limited(db, 1000, 5)
    due_at = await db.fetchval("select now() + interval '1 hour'")
    await insert(db, run_at=due_at)
    assert (await claim_batch(db, 9))["next_run_at"] == due_at


async def test_claims_are_stamped_by_the_clock_not_by_their_transaction(
    db: Connection,
) -> None:
    await limited(db, 1000, 1)
    await insert_many(db, 2)
    rows: list[Row] = []
    async with db.transaction():
        while len(rows) < 2:
            rows += await claim(db)
    first, second = [await job(db, row["id"]) for row in rows]
    assert second["started_at"] > first["started_at"]


@pytest.mark.parametrize(("rate", "burst"), [(200, 1), (300, 20)])
async def test_over_any_span_sixteen_claimers_start_no_more_than_burst_and_rate(
    connect: Connect, db: Connection, rate: float, burst: int
) -> None:
    await limited(db, rate, burst)
    await insert_many(db, 300)
    sessions = [await connect() for _ in range(16)]
    left = 300

    async def work(session: Connection) -> None:
        nonlocal left
        while left > 0:
            jobs = await claim(session, 5)
            left -= len(jobs)
            if jobs:
                await call(session, "complete_jobs", **pairs(*jobs))
            else:
                await asyncio.sleep(0.001)

    await asyncio.gather(*(work(session) for session in sessions))
    starts = [row[0] for row in await db.fetch(STARTED)]
    assert len(starts) == 300
    assert exceeds(starts, rate, burst) == []
    assert exceeds(starts, rate * 0.8, burst), "it was used, or this shows nothing"
    assert all(one <= other for one, other in pairwise(starts))


@pytest.mark.parametrize("rate", [0, -1, 1e7, float("nan"), float("inf")])
async def test_a_rate_out_of_range_is_refused(db: Connection, rate: float) -> None:
    with refused("23514", "queues_rate_limit_is_up_to_1000000_a_second"):
        await limited(db, rate, None)


@pytest.mark.parametrize("burst", [0, -1, 1_000_001])
async def test_a_burst_out_of_range_is_refused(db: Connection, burst: int) -> None:
    with refused("23514", "queues_rate_burst_is_1_to_1000000"):
        await limited(db, 1, burst)


async def test_a_burst_without_a_rate_is_refused(db: Connection) -> None:
    with refused("23514", "queues_rate_burst_needs_rate_limit"):
        await set_queue(db, rate_burst=5)

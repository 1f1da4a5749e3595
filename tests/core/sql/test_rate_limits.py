"""Rate limits: how many claims there are in any span of time."""

import asyncio
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from support import Connect, Connection
from support.sql.helpers import (
    Row,
    call,
    claim,
    claim_batch,
    claimed_ids,
    complete,
    insert,
    insert_many,
    job,
    pair,
    pairs,
    refused,
    rolled_back,
    set_clock,
    set_queue,
)
from support.sql.plans import buffers

STARTED = """
select started_at from pgwake.jobs where started_at is not null order by started_at
"""
BUCKETS = "select count(*) from pgwake.key_buckets"


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


async def keyed(db: Connection, keys: str, **columns: Any) -> list[int]:
    """Insert a job for each letter, which is its concurrency key."""
    return [await insert(db, concurrency_key=key, **columns) for key in keys]


async def keyed_many(db: Connection, key: str, count: int) -> None:
    await db.execute(
        "insert into pgwake.jobs (kind, concurrency_key)"
        " select 'noop', $1 from generate_series(1, $2::int)",
        key,
        count,
    )


async def run_all(db: Connection) -> str:
    """Run what is due until nothing is; the keys of these jobs."""
    keys = ""
    while jobs := await claim(db, 100):
        await complete(db, *jobs)
        for row in jobs:
            keys += (await job(db, row["id"]))["concurrency_key"]
    return "".join(sorted(keys))


async def set_key_rate(db: Connection, key: str, rate: float | None) -> None:
    await db.execute(
        "insert into pgwake.concurrency_limits (queue, key, max_running, rate_limit)"
        " values ('default', $1, 1, $2)"
        " on conflict (queue, key) do update set rate_limit = excluded.rate_limit",
        key,
        rate,
    )


async def test_each_key_has_a_rate_and_a_burst(db: Connection) -> None:
    await set_queue(db, key_rate=0.01, key_burst=2)
    await keyed(db, "aaaaab")
    assert await run_all(db) == "aab"
    await keyed(db, "bb")
    assert await run_all(db) == "b"

    row = await claim_batch(db, 100)
    until = row["next_run_at"] - row["claimed_at"]
    assert timedelta(seconds=98) < until < timedelta(seconds=101)
    await set_clock(db, f"{until.total_seconds()} s")
    assert await run_all(db) == "ab"
    await set_clock(db, "1 hour")
    assert await run_all(db) == "aa"


async def test_the_rate_holds_for_as_many_as_a_key_runs_at_once(db: Connection) -> None:
    await set_queue(db, key_limit=3, key_rate=0.01, key_burst=2)
    await keyed(db, "aaaa")
    assert len(await claim(db, 100)) == 2
    await set_clock(db, "1 hour")
    assert len(await claim(db, 100)) == 1, "the limit"


async def test_a_job_that_was_let_in_has_a_token_until_it_starts(
    db: Connection,
) -> None:
    await set_queue(db, key_limit=3, key_rate=0.01)
    first, second, *_ = await keyed(db, "aaa")
    urgent = await insert(db, priority=9)
    assert await claimed_ids(db, 1) == [urgent]
    assert await db.fetchval(BUCKETS) == 0, "not used yet"
    await set_clock(db, "1 hour")
    assert await claimed_ids(db) == [first], "its token fills the bucket"
    assert await claimed_ids(db) == []
    await set_clock(db, "101 minutes")
    assert await claimed_ids(db) == [second]


async def test_a_single_key_has_a_rate_of_its_own(db: Connection) -> None:
    await set_key_rate(db, "a", 0.01)
    await keyed(db, "aaabbb")
    assert await run_all(db) == "abbb"
    await set_queue(db, key_rate=0.02)
    await keyed(db, "b")
    assert await run_all(db) == "b"
    await set_clock(db, "55 seconds")
    await keyed(db, "b")
    assert await run_all(db) == "b"
    await set_clock(db, "101 seconds")
    assert await run_all(db) == "a"


async def test_a_changed_rate_starts_with_a_full_bucket(db: Connection) -> None:
    await set_queue(db, key_rate=0.001)
    await keyed(db, "aaaa")
    assert await run_all(db) == "a"
    await set_queue(db, key_rate=0.002)
    assert await run_all(db) == "a"
    await set_key_rate(db, "a", 0.003)
    assert await run_all(db) == "a"
    await set_key_rate(db, "a", None)
    await set_queue(db, key_rate=None)
    assert await run_all(db) == "a"


async def test_a_retry_waits_for_a_token(db: Connection) -> None:
    await set_queue(db, key_rate=0.01)
    (job_id,) = await keyed(db, "a")
    (held,) = await claim(db)
    await call(db, "fail_job", **pair(held), retry_in=timedelta(seconds=2))
    await set_clock(db, "3 seconds")
    assert await claim(db) == []
    await set_clock(db, "101 seconds")
    assert await claimed_ids(db) == [job_id]


async def test_a_key_without_a_token_is_not_flagged_and_full_buckets_go(
    db: Connection,
) -> None:
    await set_queue(db, key_rate=0.01)
    await keyed(db, "aab")
    assert await run_all(db) == "ab"
    assert await call(db, "maintain", step="keys") == {"keys": 0}
    await call(db, "maintain", step="retention")
    assert await db.fetchval(BUCKETS) == 2
    await set_clock(db, "101 seconds")
    await call(db, "maintain", step="retention")
    assert await db.fetchval(BUCKETS) == 0


async def test_an_exhausted_key_costs_other_claims_nothing(db: Connection) -> None:
    await set_queue(db, key_rate=0.01)
    await keyed(db, "ab")
    await insert_many(db, 4)
    await claim(db, 2)
    before = await buffers(db, "claim_rows", queue="default", count=1)
    await keyed_many(db, "a", 2000)
    await insert_many(db, 2000)
    judging = await buffers(db, "claim_rows", queue="default", count=1)
    assert judging <= before + 60
    await claim(db, 1)
    after = await buffers(db, "claim_rows", queue="default", count=1)
    assert after <= before + 20


@pytest.mark.parametrize(("rate", "burst", "most"), [(100, 1, 1), (100, 10, 4)])
async def test_over_any_span_a_key_starts_no_more_than_burst_and_rate(
    connect: Connect, db: Connection, rate: float, burst: int, most: int
) -> None:
    await set_queue(db, key_rate=rate, key_burst=burst, key_limit=most)
    for key in "abc":
        await keyed_many(db, key, 100)
    sessions = [await connect() for _ in range(8)]
    left = 300

    async def work(session: Connection) -> None:
        nonlocal left
        while left > 0:
            jobs = await claim(session, 3)
            left -= len(jobs)
            if jobs:
                await call(session, "complete_jobs", **pairs(*jobs))
            else:
                await asyncio.sleep(0.001)

    await asyncio.gather(*(work(session) for session in sessions))
    for key in "abc":
        found = await db.fetch(
            "select started_at from pgwake.jobs where concurrency_key = $1 order by 1",
            key,
        )
        starts = [row[0] for row in found]
        assert len(starts) == 100
        assert exceeds(starts, rate, burst) == []
        if most == 1:
            assert exceeds(starts, rate * 0.5, burst), "it was used"

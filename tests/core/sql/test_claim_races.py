"""A job is handed out once, whoever else claims, under any plan and isolation."""

import asyncio
from typing import Any

import asyncpg
import pytest

from support import Connect, Connection
from support.sql.helpers import (
    call,
    claim,
    claim_batch,
    insert,
    insert_many,
    rolled_back,
    rows,
    set_clock,
    set_queue,
)

CLAIMERS = 16
PLAN_SWITCHES = [
    *("hashjoin", "mergejoin", "nestloop", "hashagg", "sort", "material", "memoize"),
    *("seqscan", "indexscan", "indexonlyscan", "bitmapscan", "tidscan"),
]


async def drain(db: Connection, count: int) -> tuple[list[int], int]:
    """Claim until nothing is left; the ids, and how often the server said 40001."""
    taken: list[int] = []
    repeated = 0
    while True:
        try:
            ids = [job["id"] for job in await claim(db, count)]
        except asyncpg.SerializationError:
            repeated += 1
            continue
        if not ids:
            return taken, repeated
        taken += ids


@pytest.mark.parametrize("count", [1, 7, 100])
async def test_sixteen_claimers_never_take_a_job_twice(
    connect: Connect, db: Connection, count: int
) -> None:
    await insert_many(db, 2000)
    claimers = [await connect() for _ in range(CLAIMERS)]

    results = await asyncio.gather(*(drain(claimer, count) for claimer in claimers))
    taken = [job_id for ids, _ in results for job_id in ids]
    assert sorted(taken) == list(range(1, 2001))
    assert not any(repeated for _, repeated in results)
    assert await db.fetchval("select max(attempt) from pgwake.jobs_live") == 1


@pytest.mark.parametrize("isolation", ["repeatable read", "serializable"])
async def test_a_stricter_isolation_costs_repeats_but_no_job(
    connect: Connect, db: Connection, isolation: str
) -> None:
    await insert_many(db, 500)
    settings = {"default_transaction_isolation": isolation}
    claimers = [await connect(server_settings=settings) for _ in range(CLAIMERS)]

    results = await asyncio.gather(*(drain(claimer, 5) for claimer in claimers))
    taken = [job_id for ids, _ in results for job_id in ids]
    assert len(taken) == len(set(taken))
    # Whoever saw an old snapshot found locked rows only, and went; none is lost.
    rest, _ = await drain(claimers[0], 100)
    assert sorted(taken + rest) == list(range(1, 501))


@pytest.mark.parametrize("off", PLAN_SWITCHES)
@pytest.mark.parametrize("count", [1, 3])
async def test_never_more_than_asked_under_any_plan(
    db: Connection, off: str, count: int
) -> None:
    await set_queue(db, max_attempts=3)
    await insert_many(db, 20)
    await db.execute(f"set enable_{off} = off")

    assert len(await claim(db, count)) == count
    await set_clock(db, "1 hour")
    swept = await rows(db, "sweep_expired_leases", max_jobs=count - 1)
    assert sum(row["job_count"] for row in swept) == count - 1


async def test_never_more_than_asked_with_all_joins_but_nested_loops_off(
    db: Connection,
) -> None:
    for off in ["hashjoin", "mergejoin", "hashagg", "sort", "material", "memoize"]:
        await db.execute(f"set enable_{off} = off")
    await insert_many(db, 20)
    await db.execute("update pgwake.jobs_live set crash_count = id % 3")

    assert len(await claim(db)) == 1
    assert len((await claim_batch(db, 2, suspects=True))["ids"]) == 2
    await set_clock(db, "1 hour")
    assert len(await rows(db, "sweep_expired_leases", max_jobs=1)) == 1
    count = "select count(*) from pgwake.jobs_live where status = 'running'"
    assert await db.fetchval(count) == 2


async def test_an_open_claim_hides_its_jobs_only(
    db: Connection, other: Connection
) -> None:
    await insert_many(db, 10)
    async with db.transaction():
        first = await claim(db, 2)
        second = await claim(other, 2)
        rest = await claim(other, 100)

    assert [len(first), len(second), len(rest)] == [2, 2, 6]
    assert len({job["id"] for job in first + second + rest}) == 10


async def test_an_open_change_of_policy_holds_up_no_claim(
    db: Connection, other: Connection
) -> None:
    await set_queue(db, max_attempts=3)
    await insert_many(db, 4)
    async with db.transaction():
        await set_queue(db, max_attempts=4)
        assert len(await claim(other, 2)) == 2


async def test_a_claim_that_rolls_back_leaves_the_job_to_others(
    db: Connection, other: Connection
) -> None:
    job_id = await insert(db)
    async with rolled_back(db):
        await claim(db)
        assert await claim(other) == []

    (claimed,) = await claim(other)
    assert (claimed["id"], claimed["attempt"]) == (job_id, 1)


@pytest.mark.parametrize("crash_count", [1, 2])
async def test_two_claimers_of_what_crashed_never_share_one(
    db: Connection, other: Connection, crash_count: int
) -> None:
    for _ in range(2):
        await insert(db, crash_count=crash_count)
    arguments: dict[str, Any] = {"count": 1, "suspects": crash_count == 2}
    async with db.transaction():
        first = await claim_batch(db, **arguments)
        second = await claim_batch(other, **arguments)

    assert sorted(first["ids"] + second["ids"]) == [1, 2]


async def test_claims_and_ends_go_on_beside_each_other(
    connect: Connect, db: Connection
) -> None:
    await insert_many(db, 400)

    async def work(db: Connection) -> int:
        completed = 0
        while jobs := await claim(db, 9):
            outcomes = await call(
                db,
                "complete_jobs",
                job_ids=[job["id"] for job in jobs],
                lease_ids=[job["lease_id"] for job in jobs],
            )
            assert set(outcomes) == {"completed"}
            completed += len(jobs)
        return completed

    workers = [await connect() for _ in range(8)]
    assert sum(await asyncio.gather(*(work(worker) for worker in workers))) == 400

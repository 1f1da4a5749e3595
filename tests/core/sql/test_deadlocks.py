"""No two statements deadlock: the lock order of sql/schema.sql."""

import asyncio
import random

import asyncpg
import pytest

from support import Connect, Connection
from support.sql.helpers import (
    Row,
    call,
    claim,
    insert_many,
    pairs,
    row_locked,
    rows,
    set_clock,
    waits,
)

BATCHES = ["complete_jobs", "fail_jobs", "release_jobs", "extend_leases"]


@pytest.mark.parametrize("is_reversed", [False, True])
@pytest.mark.parametrize("second", BATCHES)
@pytest.mark.parametrize("first", ["complete_jobs", "fail_jobs", "release_jobs"])
async def test_two_batches_take_turns(
    connect: Connect, db: Connection, first: str, second: str, is_reversed: bool
) -> None:
    await insert_many(db, 3)
    held = await claim(db, 3)
    await call(db, "cancel_job", job_id=held[1]["id"])
    one, two = await connect(), await connect()
    # Both start while the first job is locked, so that they meet in the middle.
    async with row_locked(db, held[0]["id"]):
        tasks = [asyncio.create_task(call(one, first, **pairs(*held)))]
        await waits(one, tasks[0], db)
        jobs = held[::-1] if is_reversed else held
        tasks += [asyncio.create_task(call(two, second, **pairs(*jobs)))]
        if second == "extend_leases":
            assert await tasks[1] == ["extended", "cancel_requested", "extended"]
        else:
            await waits(two, tasks[1], db)

    outcomes = await asyncio.gather(*tasks)
    assert "lease_lost" not in outcomes[0]


async def test_overlapping_batches_sweeps_and_purges_never_deadlock(
    connect: Connect, db: Connection, admin_url: str
) -> None:
    await insert_many(db, 400)
    settings = {"deadlock_timeout": "50ms"}
    sessions = [await connect(admin_url, server_settings=settings) for _ in range(11)]
    held = {job["id"]: job for job in await claim(db, 400)}
    stop = asyncio.get_running_loop().time() + 4
    ended: list[str] = []

    def is_over() -> bool:
        return asyncio.get_running_loop().time() > stop

    async def end(session: Connection, seed: int) -> None:
        chance = random.Random(seed)  # noqa: S311, not for secrets
        while not is_over():
            batch: list[Row] = chance.sample(list(held.values()), 100)
            function = chance.choice(BATCHES)
            ended.extend(await call(session, function, **pairs(*batch)))
            for job in await claim(session, 60):
                held[job["id"]] = job

    async def sweep(session: Connection) -> None:
        await set_clock(session, "10 minutes")
        while not is_over():
            await rows(session, "sweep_expired_leases", max_jobs=30)
            await call(session, "apply_retention")

    async def cancel_and_retry(session: Connection, seed: int) -> None:
        chance = random.Random(seed)  # noqa: S311, not for secrets
        while not is_over():
            job_id = chance.choice(list(held))
            if await call(session, "cancel_job", job_id=job_id) != "cancel_requested":
                try:
                    await call(session, "retry_job", job_id=job_id)
                except asyncpg.PostgresError as error:
                    assert error.sqlstate == "PW003"  # noqa: PT017, completed

    await asyncio.gather(
        *(end(session, seed) for seed, session in enumerate(sessions[:8])),
        *(sweep(session) for session in sessions[8:10]),
        cancel_and_retry(sessions[10], 99),
    )
    assert {"completed", "retry", "released", "lease_lost"} <= set(ended)
    count = "select count(*), count(distinct id) from pgwake.jobs"
    assert tuple(await db.fetchrow(count) or ()) == (400, 400)

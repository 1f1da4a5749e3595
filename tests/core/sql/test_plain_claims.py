"""A claim of a plain queue takes a short way: the same jobs as the long one."""

import random
from datetime import timedelta
from typing import Any

import pytest

from support import Connection
from support.sql.helpers import (
    Row,
    call,
    insert,
    insert_many,
    row_locked,
    rows,
    set_kind,
    set_queue,
)

# What a claim has done, by its own time.
AFTER = """
select j.id, j.status, j.attempt, j.claimed_by,
  round(extract(epoch from j.lease_expires_at - now()) / 60) as lease,
  j.started_at >= now() as has_started
from pgwake.jobs_live as j order by j.id
"""
COUNTED = "select sum(c.running_rows) from pgwake.counts as c"
THE_LONG_WAY: Row = {}  # a cursor that says nothing


async def claimed(db: Connection, cursor: Any, **arguments: Any) -> Any:
    """All that a claim has answered and done, in a transaction that is rolled back."""
    transaction = db.transaction()
    await transaction.start()
    now = await call(db, "now")
    jobs = await rows(
        db, "claim_rows", queue="default", worker="w", cursor=cursor, **arguments
    )
    for job in jobs:
        for column in ("lease_expires_at", "claimed_at"):
            # In minutes, since a claim's time is that of its jobs' start, by the clock.
            job[column] = job[column] and round(
                (job[column] - now).total_seconds() / 60
            )
    assert len({job.pop("lease_id") for job in jobs[:-1]}) == (len(jobs) > 1)
    after = [tuple(row) for row in await db.fetch(AFTER)]
    counted = await db.fetchval(COUNTED)
    await transaction.rollback()
    return jobs, after, counted


@pytest.mark.parametrize("seed", range(6))
async def test_both_ways_claim_alike(
    db: Connection, other: Connection, seed: int
) -> None:
    dice = random.Random(seed)  # noqa: S311 - not for secrets
    now = await call(db, "now")
    ids = [
        await insert(
            db,
            dice.choice(["noop", "slow"]),
            priority=dice.choice([0, 0, 0, 5, -5]),
            run_at=now + timedelta(minutes=dice.choice([-5, -1, 0, 0, 0, 5])),
            crash_count=dice.choice([0] * 19 + [1]) if seed % 2 else 0,
        )
        for _ in range(dice.choice([5, 12]))
    ]
    if dice.random() < 0.5:
        await set_kind(db, "slow", lease=timedelta(hours=1), timeout=timedelta(hours=1))
    if dice.random() < 0.5:
        await set_queue(
            db,
            lease=timedelta(minutes=9),
            timeout=dice.choice([None, timedelta(hours=9)]),
        )

    async with row_locked(other, dice.choice(ids)):
        for count in (1, 2, 5, 20):
            arguments: Row = {"count": count}
            if dice.random() < 0.3:
                arguments["lease"] = timedelta(minutes=2)
            plain = await claimed(db, None, **arguments)
            assert len(plain[0]) > 1
            assert plain == await claimed(db, THE_LONG_WAY, **arguments)


async def test_a_plain_claim_takes_the_short_way(db: Connection) -> None:
    await insert_many(db, 3)
    await insert(db, priority=9)
    await insert(db, run_at=await db.fetchval("select now() + interval '1 hour'"))
    for function in ("lock_due_jobs", "limit_claim", "admit_due_jobs", "get_audience"):
        await db.execute(f"alter function pgwake.{function} rename to gone")

        assert len(await rows(db, "claim_rows", queue="default", count=1)) == 2
        await db.execute(f"alter function pgwake.gone rename to {function}")
    assert len(await rows(db, "claim_rows", queue="default", count=9)) == 1


async def test_a_claim_says_the_rest_in_a_row_behind_the_jobs(db: Connection) -> None:
    job_id = await insert(db)
    *jobs, said = await rows(db, "claim_rows", queue="default", count=2)
    own = {"claimed_at", "is_limited", "next_run_at", "left_out_id", "next_cursor"}

    assert [job["id"] for job in jobs] == [job_id]
    assert {jobs[0][name] for name in own} == {None}
    assert {said[name] for name in said.keys() - own} == {None}
    assert (said["is_limited"], said["next_run_at"]) == (False, None)

"""max_running: how many jobs of a queue run at once."""

import asyncio
from datetime import timedelta

import pytest

from support import Connect, Connection
from support.sql.helpers import (
    Listener,
    call,
    claim,
    claim_batch,
    insert,
    insert_many,
    pair,
    pairs,
    refused,
    rolled_back,
    set_clock,
    set_queue,
    sweep,
)

RUNNING = "select count(*) from pgwake.jobs_live where status = 'running'"


async def test_no_more_run_at_once(db: Connection) -> None:
    await set_queue(db, max_running=3)
    await insert_many(db, 5)

    jobs = await claim(db, 100)
    assert len(jobs) == 3
    assert await claim(db, 100) == []
    await call(db, "complete_jobs", **pairs(*jobs[:2]))
    assert len(await claim(db, 100)) == 2


async def test_what_is_left_has_no_time_until_a_job_ends(db: Connection) -> None:
    await set_queue(db, max_running=1)
    await insert_many(db, 2)
    assert (await claim_batch(db, 9))["next_run_at"] is None
    row = await claim_batch(db, 9)
    assert (row["ids"], row["next_run_at"]) == ([], None)


async def test_other_queues_are_not_limited(db: Connection) -> None:
    await set_queue(db, max_running=1)
    await insert_many(db, 3, queue="other")
    assert len(await claim(db, 3, queue="other")) == 3


async def test_a_claim_says_whether_its_queue_leaves_it_little_room(
    db: Connection,
) -> None:
    limited = "select is_limited from pgwake.claim_batch('default', 2)"
    assert await db.fetchval(limited) is False
    for policy, is_limited in (
        ({"max_running": 3}, True),
        ({"max_running": 4}, False),
        ({"max_running": None, "rate_limit": 3.0}, True),
        ({"rate_limit": 4.0}, False),
    ):
        await set_queue(db, **policy)
        assert await db.fetchval(limited) is is_limited, policy


async def test_two_open_claims_never_exceed_it(
    db: Connection, other: Connection
) -> None:
    await set_queue(db, max_running=1)
    await insert_many(db, 2)
    async with db.transaction():
        assert len(await claim(db)) == 1
        row = await claim_batch(other)
        assert row["ids"] == []
        assert row["next_run_at"] <= row["claimed_at"], "look again soon"
    assert await claim(other) == []


async def test_sixteen_claimers_never_exceed_it(
    connect: Connect, db: Connection
) -> None:
    await set_queue(db, max_running=3)
    await insert_many(db, 500)
    seen: list[int] = []
    done = 0

    async def work() -> None:
        nonlocal done
        session = await connect()
        while done < 500:
            jobs = await claim(session, 2)
            if jobs:
                seen.append(await session.fetchval(RUNNING))
                await call(session, "complete_jobs", **pairs(*jobs))
                done += len(jobs)
            else:
                await asyncio.sleep(0.001)

    await asyncio.gather(*(work() for _ in range(16)))
    assert done == 500
    assert max(seen) == 3


async def test_suspects_count_too(db: Connection) -> None:
    await set_queue(db, max_running=1)
    await insert(db, crash_count=2)
    await insert(db)
    assert len(await claim(db)) == 1
    row = await claim_batch(db, suspects=True)
    assert (row["ids"], row["next_run_at"]) == ([], None)


@pytest.mark.parametrize(
    "end",
    ["complete", "fail", "retry", "release", "snooze", "cancel", "crash", "force"],
)
async def test_each_end_of_a_job_wakes_who_sleeps(
    connect: Connect, db: Connection, end: str
) -> None:
    await set_queue(db, max_running=1)
    await insert_many(db, 2)
    (job,) = await claim(db, worker="w1")
    listener = await Listener.with_notify_locks(await connect(), "default")
    far = timedelta(hours=1)
    if end == "complete":
        await call(db, "complete_job", **pair(job))
    elif end == "fail":
        await call(db, "fail_job", **pair(job), retryable=False)
    elif end == "retry":
        await call(db, "fail_job", **pair(job), retry_in=far)
    elif end == "release":
        await call(db, "release_jobs", **pairs(job))
    elif end == "snooze":
        await call(db, "snooze_job", **pair(job), delay=far)
    elif end == "cancel":
        await call(db, "cancel_job", job_id=job["id"])
        await call(db, "fail_job", **pair(job))
    elif end == "crash":
        await call(db, "release_worker_jobs", worker="w1")
    else:
        await call(db, "force_fail_job", job_id=job["id"], reason="by hand")
    assert set(await listener.heard()) == {"default"}
    assert len(await claim(db)) == 1


async def test_the_end_of_a_job_in_a_queue_without_limits_is_silent(
    connect: Connect, db: Connection
) -> None:
    await set_queue(db, "other", max_running=1)
    await insert_many(db, 2)
    jobs = await claim(db, 2)
    listener = await Listener.with_notify_locks(await connect(), "default", "other")
    await call(db, "complete_job", **pair(jobs[0]))
    await call(db, "fail_job", **pair(jobs[1]), retryable=False)
    assert await listener.heard() == []


async def test_a_dead_workers_jobs_are_swept_though_the_queue_is_full(
    db: Connection,
) -> None:
    await set_queue(db, max_running=1)
    await insert_many(db, 6)
    assert len(await claim(db)) == 1  # and its worker dies
    assert await claim(db) == []
    await set_clock(db, "1 hour")
    assert await sweep(db) == 1

    ended = 0
    while jobs := await claim(db):
        await call(db, "complete_jobs", **pairs(*jobs))
        ended += len(jobs)
    assert ended == 6


async def test_a_raised_limit_holds_at_once_and_a_lowered_one_ends_nothing(
    connect: Connect, db: Connection
) -> None:
    await set_queue(db, max_running=1)
    await insert_many(db, 6)
    jobs = await claim(db, 9)
    listener = await Listener.with_notify_locks(await connect(), "default")
    await set_queue(db, max_running=3)
    assert await listener.heard() == ["default"]
    jobs += await claim(db, 9)
    assert len(jobs) == 3

    await set_queue(db, max_running=1)
    await call(db, "complete_jobs", **pairs(*jobs[:2]))
    assert await claim(db) == []
    await call(db, "complete_jobs", **pairs(jobs[2]))
    assert len(await claim(db, 9)) == 1


async def test_keys_and_max_running_hold_together(db: Connection) -> None:
    await set_queue(db, max_running=2, key_limit=2)
    for key in "aaabbb":
        await insert(db, concurrency_key=key)
    jobs = await claim(db, 9)
    assert len(jobs) == 2
    assert await claim(db, 9) == []


async def test_a_claim_that_rolls_back_gives_the_room_back(
    db: Connection, other: Connection
) -> None:
    await set_queue(db, max_running=1)
    await insert_many(db, 1)
    async with rolled_back(db):
        assert len(await claim(db)) == 1
    assert len(await claim(other)) == 1


async def test_an_open_change_of_the_policy_holds_up_no_claim(
    db: Connection, other: Connection
) -> None:
    await set_queue(db, max_running=2)
    await insert_many(db, 2)
    async with db.transaction():
        await set_queue(db, max_running=3)
        assert len(await claim(other, 2)) == 2


async def test_under_repeatable_read_it_is_refused_with_a_reason(
    db: Connection,
) -> None:
    await set_queue(db, max_running=2)
    await insert_many(db, 2)
    with refused("PW003"):
        async with db.transaction(isolation="repeatable_read"):
            await claim(db)

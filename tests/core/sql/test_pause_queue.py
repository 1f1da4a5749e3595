"""pause_queue and resume_queue: nothing is claimed between them."""

from datetime import UTC, datetime, timedelta

import pytest

from support import Connect, Connection
from support.sql.helpers import (
    Listener,
    call,
    claim,
    claim_batch,
    insert,
    pair,
    refused,
    rolled_back,
    running,
    set_clock,
    set_queue,
)

INFINITY = datetime.max.replace(tzinfo=UTC)


async def pause(db: Connection, queue: str = "default", seconds: int = 60) -> None:
    now = await call(db, "now")
    until = now + timedelta(seconds=seconds)
    assert await call(db, "pause_queue", queue=queue, until=until) == until


async def test_a_paused_queue_gives_nothing_until_it_is_resumed(db: Connection) -> None:
    await insert(db)
    paused = await db.fetchval("select pgwake.pause_queue()::text")
    assert paused == "infinity"
    assert await claim(db) == []
    assert (await claim_batch(db))["next_run_at"] is None
    await set_clock(db, "1000 years")
    assert await claim(db) == []

    assert await call(db, "resume_queue") is True
    assert len(await claim(db)) == 1


async def test_only_the_queue_that_is_named_is_paused(db: Connection) -> None:
    await insert(db, queue="a")
    await insert(db, queue="b")
    await call(db, "pause_queue", queue="a")

    assert await claim(db, queue="a") == []
    assert len(await claim(db, queue="b")) == 1
    assert await call(db, "resume_queue", queue="b") is False
    assert await claim(db, queue="a") == []


async def test_another_pause_replaces_the_first(db: Connection) -> None:
    await pause(db, seconds=3600)
    await pause(db, seconds=60)
    await set_clock(db, "2 min")
    await insert(db)

    assert len(await claim(db)) == 1


async def test_a_pause_keeps_the_rest_of_the_queues_policy(db: Connection) -> None:
    await set_queue(db, max_attempts=3)
    await call(db, "pause_queue")
    await call(db, "resume_queue")

    row = await db.fetchrow("select * from pgwake.queues")
    assert row is not None
    assert (row["max_attempts"], row["paused_until"]) == (3, None)


async def test_what_runs_runs_to_its_end_and_jobs_may_be_added(db: Connection) -> None:
    held = await running(db)
    await call(db, "pause_queue")

    await call(db, "complete_job", **pair(held))
    assert await insert(db)


async def test_a_resume_says_whether_the_queue_was_paused(db: Connection) -> None:
    assert await call(db, "resume_queue") is False
    assert await db.fetchval("select count(*) from pgwake.queues") == 0

    await pause(db)
    await set_clock(db, "2 min")
    assert await call(db, "resume_queue") is False
    await call(db, "pause_queue")
    assert await call(db, "resume_queue") is True
    assert await call(db, "resume_queue") is False


async def test_a_resume_wakes_who_sleeps(connect: Connect, db: Connection) -> None:
    listener = await Listener.with_notify_locks(await connect(), "default")
    await insert(db)
    await call(db, "pause_queue")
    await listener.heard()

    await call(db, "resume_queue")
    assert await listener.heard() == ["default"]


@pytest.mark.parametrize("queue", [None, "", "x" * 129, "\u00e9" * 65])
@pytest.mark.parametrize("function", ["pause_queue", "resume_queue"])
async def test_a_name_that_no_queue_can_have_is_refused(
    db: Connection, function: str, queue: str | None
) -> None:
    with refused("PW003"):
        await call(db, function, queue=queue)
    assert await db.fetchval("select count(*) from pgwake.queues") == 0


@pytest.mark.parametrize(
    "until",
    ["null", "'-infinity'", "pgwake.now()", "now() - interval '1 s'", "'9999-12-31'"],
)
async def test_a_time_that_can_not_be_meant_is_refused(
    db: Connection, until: str
) -> None:
    with refused("PW003"):
        await db.fetchval(f"select pgwake.pause_queue('default', {until})")
    assert await db.fetchval("select count(*) from pgwake.queues") == 0


async def test_a_pause_that_is_rolled_back_paused_nobody(
    db: Connection, other: Connection
) -> None:
    await insert(db)
    async with rolled_back(other):
        await call(other, "pause_queue")

    assert len(await claim(db)) == 1


async def test_claims_do_not_wait_for_a_pause_that_is_open(
    db: Connection, other: Connection
) -> None:
    await insert(db)
    async with other.transaction():
        await call(other, "pause_queue")
        assert len(await claim(db)) == 1

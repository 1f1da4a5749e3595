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


async def pause(
    connection: Connection, queue: str = "default", seconds: int = 60
) -> None:
    now = await call(connection, "now")
    until = now + timedelta(seconds=seconds)
    assert await call(connection, "pause_queue", queue=queue, until=until) == until


async def test_a_paused_queue_gives_nothing_until_it_is_resumed(
    connection: Connection,
) -> None:
    await insert(connection)
    paused = await connection.fetchval("select pgwake.pause_queue()::text")
    assert paused == "infinity"
    assert await claim(connection) == []
    assert (await claim_batch(connection))["next_run_at"] is None
    await set_clock(connection, "1000 years")
    assert await claim(connection) == []

    assert await call(connection, "resume_queue") is True
    assert len(await claim(connection)) == 1


async def test_a_pause_until_a_time_ends_by_itself(connection: Connection) -> None:
    await insert(connection)
    await pause(connection)
    assert await claim(connection) == []

    await set_clock(connection, "1 min 1 s")
    assert len(await claim(connection)) == 1


async def test_a_claim_answers_with_the_end_of_the_pause(
    connection: Connection,
) -> None:
    await insert(connection)
    until = await call(connection, "now") + timedelta(hours=1)
    await call(connection, "pause_queue", until=until)

    assert (await claim_batch(connection))["next_run_at"] == until


async def test_only_the_queue_that_is_named_is_paused(connection: Connection) -> None:
    await insert(connection, queue="a")
    await insert(connection, queue="b")
    await call(connection, "pause_queue", queue="a")

    assert await claim(connection, queue="a") == []
    assert len(await claim(connection, queue="b")) == 1
    assert await call(connection, "resume_queue", queue="b") is False
    assert await claim(connection, queue="a") == []


async def test_another_pause_replaces_the_first(connection: Connection) -> None:
    await pause(connection, seconds=3600)
    await pause(connection, seconds=60)
    await set_clock(connection, "2 min")
    await insert(connection)

    assert len(await claim(connection)) == 1


async def test_a_pause_keeps_the_rest_of_the_queues_policy(
    connection: Connection,
) -> None:
    await set_queue(connection, max_attempts=3)
    await call(connection, "pause_queue")
    await call(connection, "resume_queue")

    row = await connection.fetchrow("select * from pgwake.queues")
    assert row is not None
    assert (row["max_attempts"], row["paused_until"]) == (3, None)


async def test_what_runs_runs_to_its_end_and_jobs_may_be_added(
    connection: Connection,
) -> None:
    held = await running(connection)
    await call(connection, "pause_queue")

    await call(connection, "complete_job", **pair(held))
    assert await insert(connection)


async def test_a_resume_says_whether_the_queue_was_paused(
    connection: Connection,
) -> None:
    assert await call(connection, "resume_queue") is False
    assert await connection.fetchval("select count(*) from pgwake.queues") == 0

    await pause(connection)
    await set_clock(connection, "2 min")
    assert await call(connection, "resume_queue") is False
    await call(connection, "pause_queue")
    assert await call(connection, "resume_queue") is True
    assert await call(connection, "resume_queue") is False


async def test_a_resume_wakes_who_sleeps(
    connect: Connect, connection: Connection
) -> None:
    listener = await Listener.with_bells(await connect(), "default")
    await insert(connection)
    await call(connection, "pause_queue")
    await listener.heard()

    await call(connection, "resume_queue")
    assert await listener.heard() == ["default"]


@pytest.mark.parametrize("queue", [None, "", "x" * 129, "\u00e9" * 65])
@pytest.mark.parametrize("function", ["pause_queue", "resume_queue"])
async def test_a_name_that_no_queue_can_have_is_refused(
    connection: Connection, function: str, queue: str | None
) -> None:
    with refused("PW003"):
        await call(connection, function, queue=queue)
    assert await connection.fetchval("select count(*) from pgwake.queues") == 0


@pytest.mark.parametrize(
    "until",
    ["null", "'-infinity'", "pgwake.now()", "now() - interval '1 s'", "'9999-12-31'"],
)
async def test_a_time_that_can_not_be_meant_is_refused(
    connection: Connection, until: str
) -> None:
    with refused("PW003"):
        await connection.fetchval(f"select pgwake.pause_queue('default', {until})")
    assert await connection.fetchval("select count(*) from pgwake.queues") == 0


async def test_a_pause_that_is_rolled_back_paused_nobody(
    connection: Connection, other: Connection
) -> None:
    await insert(connection)
    async with rolled_back(other):
        await call(other, "pause_queue")

    assert len(await claim(connection)) == 1


async def test_claims_do_not_wait_for_a_pause_that_is_open(
    connection: Connection, other: Connection
) -> None:
    await insert(connection)
    async with other.transaction():
        await call(other, "pause_queue")
        assert len(await claim(connection)) == 1

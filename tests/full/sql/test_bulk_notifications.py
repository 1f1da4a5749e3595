"""What a bulk operation sends: a notification a queue, however many jobs it is of."""

from collections.abc import Awaitable, Callable

import pytest

from support import Connect, Connection
from support.sql.fixtures import fixture
from support.sql.helpers import Listener, insert_many, set_queue


@fixture
async def listener(connect: Connect) -> Listener:
    """A session that sleeps on the queue default."""
    return await Listener.with_notify_locks(await connect(), "default")


async def by_select(db: Connection, count: int) -> None:
    await insert_many(db, count)


async def by_copy(db: Connection, count: int) -> None:
    await db.copy_records_to_table(
        "jobs", schema_name="pgwake", columns=["kind"], records=[("noop",)] * count
    )


async def by_many_statements(db: Connection, count: int) -> None:
    async with db.transaction():
        for _ in range(count // 100):
            await insert_many(db, 100)


WAYS = [by_select, by_copy, by_many_statements]


@pytest.mark.parametrize("count", [1000, 100000])
@pytest.mark.parametrize("way", WAYS)
async def test_a_transaction_of_many_jobs_notifies_once(
    db: Connection,
    listener: Listener,
    way: Callable[[Connection, int], Awaitable[None]],
    count: int,
) -> None:
    await way(db, count)

    assert await listener.heard() == ["default"]
    stored = await db.fetchval("select count(*) from pgwake.jobs_live")
    assert stored == count


@pytest.mark.parametrize("count", [100, 2000])
async def test_many_retries_in_one_statement_notify_once(
    db: Connection, listener: Listener, count: int
) -> None:
    await insert_many(db, count)
    await db.execute("select pgwake.cancel_job(id) from pgwake.jobs_live")
    await listener.heard()
    await db.execute("select pgwake.retry_job(id) from pgwake.jobs_finished")

    assert await listener.heard() == ["default"]


@pytest.mark.parametrize("count", [100, 2000])
async def test_many_cancellations_notify_nobody(
    db: Connection, listener: Listener, count: int
) -> None:
    await insert_many(db, count)
    await listener.heard()
    await db.execute("select pgwake.cancel_job(id) from pgwake.jobs_live")

    assert await listener.heard() == []


@pytest.mark.parametrize("count", [1000, 20000])
async def test_events_of_many_jobs_are_as_many(
    db: Connection, connect: Connect, count: int
) -> None:
    await set_queue(db, status_events="always")
    listener = await Listener.start(await connect(), "job_status_changed")
    await by_many_statements(db, count)

    ids = [event["id"] for event in await listener.events()]
    assert len(ids) == len(set(ids)) == count

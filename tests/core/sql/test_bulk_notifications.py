"""What a bulk operation sends: a notification a queue, however many jobs it is of."""

from collections.abc import Awaitable, Callable

import pytest

from support import Connect, Connection
from support.sql.fixtures import fixture
from support.sql.helpers import Listener, insert_many, set_queue


@fixture
async def listener(connect: Connect) -> Listener:
    """A session that sleeps on the queue default."""
    return await Listener.with_bells(await connect(), "default")


async def by_select(connection: Connection, count: int) -> None:
    await insert_many(connection, count)


async def by_copy(connection: Connection, count: int) -> None:
    await connection.copy_records_to_table(
        "jobs", schema_name="pgwake", columns=["kind"], records=[("noop",)] * count
    )


async def by_many_statements(connection: Connection, count: int) -> None:
    async with connection.transaction():
        for _ in range(count // 100):
            await insert_many(connection, 100)


WAYS = [by_select, by_copy, by_many_statements]


@pytest.mark.parametrize("count", [1000, 10000, 100000])
@pytest.mark.parametrize("way", WAYS)
async def test_a_transaction_of_many_jobs_notifies_once(
    connection: Connection,
    listener: Listener,
    way: Callable[[Connection, int], Awaitable[None]],
    count: int,
) -> None:
    await way(connection, count)

    assert await listener.heard() == ["default"]
    stored = await connection.fetchval("select count(*) from pgwake.jobs_live")
    assert stored == count


@pytest.mark.parametrize("count", [100, 2000])
async def test_many_retries_in_one_statement_notify_once(
    connection: Connection, listener: Listener, count: int
) -> None:
    await insert_many(connection, count)
    await connection.execute("select pgwake.cancel_job(id) from pgwake.jobs_live")
    await listener.heard()
    await connection.execute("select pgwake.retry_job(id) from pgwake.jobs_finished")

    assert await listener.heard() == ["default"]


@pytest.mark.parametrize("count", [100, 2000])
async def test_many_cancellations_notify_nobody(
    connection: Connection, listener: Listener, count: int
) -> None:
    await insert_many(connection, count)
    await listener.heard()
    await connection.execute("select pgwake.cancel_job(id) from pgwake.jobs_live")

    assert await listener.heard() == []


@pytest.mark.parametrize("count", [1000, 100000])
async def test_events_of_many_jobs_are_as_many(
    connection: Connection, connect: Connect, count: int
) -> None:
    await set_queue(connection, status_events="always")
    listener = await Listener.start(await connect(), "job_status_changed")
    await by_many_statements(connection, count)

    ids = [event["id"] for event in await listener.events()]
    assert len(ids) == len(set(ids)) == count

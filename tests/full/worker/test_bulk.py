"""Very many jobs at once."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import pytest

from pgwake import InvalidArgumentError, NewJob
from support import Connect, Connection
from support.sql.helpers import Listener
from support.worker.producers import (
    Producer,
    of_async_session,
    of_asyncpg,
    of_django,
    of_psycopg,
)

COUNT = 50_000

Open = Callable[[str], AbstractAsyncContextManager[Producer]]


@pytest.mark.parametrize(
    "opened",
    [of_asyncpg, of_psycopg, of_async_session, of_django],
    ids=lambda opened: opened.__name__,
)
async def test_fifty_thousand_jobs_are_copied_counted_and_told_of_once(
    opened: Open,
    database: str,
    connection: Connection,
    connect: Connect,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "true")
    listener = await Listener.with_notify_locks(await connect(), "a", "b")
    jobs = (NewJob("k", {"n": n}, queue="ab"[n % 2]) for n in range(COUNT))
    async with opened(database) as producer, producer.transaction():
        assert await producer("copy", jobs) == COUNT

    assert sorted(await listener.heard()) == ["a", "b"]
    stats = "select queue, pending_count, enqueued_total from pgwake.get_queue_stats()"
    counted = {tuple(row) for row in await connection.fetch(stats)}
    assert counted == {(name, COUNT // 2, COUNT // 2) for name in "ab"}
    sums = "select sum((payload->'n')::int), count(distinct id) from pgwake.jobs_live"
    found = await connection.fetchrow(sums)
    assert found is not None
    assert tuple(found) == (COUNT * (COUNT - 1) // 2, COUNT)


async def test_jobs_that_wait_for_a_key_or_a_parent_are_copied_too(
    database: str, connection: Connection
) -> None:
    async with of_asyncpg(database) as producer:
        parent = await producer("enqueue", "quick")
        jobs = [NewJob("quick", concurrency_key=f"c{n % 10}") for n in range(100)]
        jobs += [NewJob("quick", depends_on=[parent]) for _ in range(100)]
        await producer("copy", jobs)

    statuses = "select status, count(*) from pgwake.jobs group by 1 order by 1"
    rows = await connection.fetch(statuses)
    assert [tuple(row) for row in rows] == [("pending", 1), ("waiting", 200)]
    stats = await connection.fetchrow("select * from pgwake.get_queue_stats('default')")
    assert stats is not None
    assert (stats["pending_count"], stats["waiting_count"]) == (1, 200)


async def test_a_job_that_can_not_be_copied_is_found_before_any_is_sent(
    database: str, connection: Connection
) -> None:
    async with of_asyncpg(database) as producer, producer.transaction():
        with pytest.raises(InvalidArgumentError, match="copy can't return a live job"):
            await producer("copy", [NewJob("a"), NewJob("a", unique_key="u")])
        await producer("enqueue", "b")

    assert await connection.fetchval("select kind from pgwake.jobs") == "b"

"""Leases: kept up while the worker lives, taken over when it does not."""

import asyncio
from datetime import timedelta

from pgwake import Registry
from support import Connect, Connection, wait_for
from support.sql.helpers import insert, set_queue
from support.worker.helpers import all_ended, embedded, ended, in_status, insert_some
from support.worker.processes import Diary, StartProcess
from support.worker.registries import waiting


async def shortest_lease(connection: Connection, seconds: float) -> timedelta:
    """Look for so long; the least that any running job had left of its lease."""
    shortest = timedelta.max
    end = asyncio.get_running_loop().time() + seconds
    while asyncio.get_running_loop().time() < end:
        left = await connection.fetchval(
            "select min(lease_expires_at) - clock_timestamp() from pgwake.jobs_live"
            " where status = 'running'"
        )
        shortest = min(shortest, left or shortest)
    return shortest


async def test_a_job_of_four_leases_is_started_once(
    connection: Connection, start_worker: StartProcess, diary: Diary
) -> None:
    await start_worker(lease=3)
    await start_worker(lease=3)
    # Of each way to run there is: on the loop, blocking it, and in a thread.
    ids = [
        await insert(connection, kind, payload={"seconds": 12})
        for kind in ("nap", "thread", "block")
    ]
    rows = [await ended(connection, job_id) for job_id in ids]

    assert [row["status"] for row in rows] == ["completed"] * 3
    assert [row["crash_count"] for row in rows] == [0] * 3
    assert sorted(entry["job"] for entry in diary.entries(event="start")) == ids


async def test_a_lease_is_renewed_before_half_of_it_has_passed(
    connection: Connection, database: str
) -> None:
    registry, stop = waiting()
    await insert_some(connection, "wait", 100)
    async with embedded(database, registry, lease=6, queues="default:100"):
        shortest = await shortest_lease(connection, seconds=5)
        stop.set()
        await all_ended(connection)

    # Half, and a tenth for a machine that is busy with other things.
    assert shortest > timedelta(seconds=6) * 0.4


async def test_queues_with_different_leases_are_each_kept_by_their_own(
    connection: Connection, database: str
) -> None:
    registry = Registry()

    @registry.job("sleep")
    async def sleep() -> None:
        await asyncio.sleep(7)

    await set_queue(connection, "short", lease=timedelta(seconds=3))
    await set_queue(connection, "long", lease=timedelta(minutes=10))
    queues = ("long", "short")
    ids = [await insert(connection, "sleep", queue=queue) for queue in queues]
    async with embedded(database, registry, queues=queues):
        row = await in_status(connection, ids[0], "running")
        assert row["lease_expires_at"] - row["started_at"] == timedelta(minutes=10)
        rows = [await ended(connection, job_id) for job_id in ids]

    assert [row["crash_count"] for row in rows] == [0, 0]


async def test_a_lease_that_is_shortened_meanwhile_is_not_lost(
    connection: Connection, database: str
) -> None:
    # It is renewed by its own length: a renewal for one second, once in a while, would
    # leave it open in between.
    await set_queue(connection, lease=timedelta(seconds=6))
    registry, stop = waiting()
    job_id = await insert(connection, "wait")
    async with embedded(database, registry):
        await in_status(connection, job_id, "running")
        await set_queue(connection, lease=timedelta(seconds=1))
        shortest = await shortest_lease(connection, seconds=7)
        stop.set()
        row = await ended(connection, job_id)

    assert shortest > timedelta(seconds=6) * 0.4
    assert (row["status"], row["crash_count"]) == ("completed", 0)


async def test_a_lease_in_flight_is_not_mistaken_for_a_lost_one(
    connection: Connection, database: str
) -> None:
    # Ends and renewals of the same jobs meet all the time.
    registry = Registry()

    @registry.job("short")
    async def short() -> None:
        await asyncio.sleep(0.3)

    await insert_some(connection, "short", 800)
    async with embedded(database, registry, lease=3, queues="default:50") as worker:
        await all_ended(connection)
    text = worker.metrics.render().decode()

    assert "pgwake_leases_lost_total{" not in text


async def test_a_worker_that_waits_for_a_locked_row_loses_nothing(
    connection: Connection, database: str, connect: Connect
) -> None:
    registry, holder = Registry(), await connect()
    go = asyncio.Event()

    @registry.job("wait")
    async def wait() -> None:
        await go.wait()

    job_id = await insert(connection, "wait")
    async with embedded(database, registry, lease=5):
        await in_status(connection, job_id, "running")
        async with holder.transaction():
            await holder.execute("select from pgwake.jobs_live for update")
            go.set()

            await wait_for(
                lambda: connection.fetchval(
                    "select count(*) from pg_stat_activity"
                    " where wait_event_type = 'Lock'"
                ),
                10,
            )
        row = await ended(connection, job_id)

    assert (row["status"], row["crash_count"]) == ("completed", 0)

"""Queues and slots: what runs where, in which order, and how much at once."""

import threading

from pgwake import Registry
from support import Connection, wait_for
from support.sql.helpers import insert, job
from support.worker.helpers import (
    all_ended,
    asleep,
    embedded,
    ended,
    in_status,
    insert_some,
)
from support.worker.metrics import wakeups
from support.worker.registries import Crowd, quick, waiting


async def test_a_paused_queue_waits_until_it_is_resumed(
    connection: Connection, database: str
) -> None:
    async with embedded(database, quick()) as worker:
        await asleep(worker)
        await connection.execute(
            "insert into pgwake.queues (name, paused_until)"
            " values ('default', 'infinity')"
        )
        job_id = await insert(connection, "quick")
        looks = wakeups(worker)

        await connection.execute("select pgwake.wake('default')")
        await wait_for(lambda: wakeups(worker) > looks)
        assert (await job(connection, job_id))["status"] == "pending"
        await connection.execute("update pgwake.queues set paused_until = null")
        await ended(connection, job_id, within=10)


async def test_jobs_are_claimed_by_priority_then_due_time_then_id(
    connection: Connection, database: str
) -> None:
    registry = Registry()
    order: list[int] = []

    @registry.job("note")
    async def note(number: int) -> None:
        order.append(number)

    await connection.execute(
        "insert into pgwake.jobs (kind, priority, run_at, payload) values"
        " ('note', 0, now(), '{\"number\": 4}'),"
        " ('note', 0, now() - interval '1 minute', '{\"number\": 3}'),"
        " ('note', 5, now(), '{\"number\": 1}'),"
        " ('note', 5, now(), '{\"number\": 2}'),"
        " ('note', -5, now() - interval '1 hour', '{\"number\": 5}')"
    )
    async with embedded(database, registry, queues="default:1"):
        await all_ended(connection)

    assert order == [1, 2, 3, 4, 5]


async def test_a_burst_on_top_of_running_jobs_fills_the_free_slots(
    connection: Connection, database: str
) -> None:
    registry, go = waiting()
    async with embedded(database, registry, queues="default:4"):
        first = await insert(connection, "wait")
        await in_status(connection, first, "running")
        ids = [await insert(connection, "wait") for _ in range(3)]
        for job_id in ids:
            await in_status(connection, job_id, "running", within=10)
        go.set()
        await all_ended(connection)


async def test_a_worker_without_queues_works_on_those_of_its_handlers(
    connection: Connection, database: str
) -> None:
    registry = Registry()

    @registry.job("a", queue="here")
    async def run_here() -> None: ...

    @registry.job("b", queue="there")
    async def run_there() -> None: ...

    ids = [
        await insert(connection, "b", queue="here"),
        await insert(connection, "a", queue="there"),
    ]
    other = await insert(connection, "a")
    async with embedded(database, registry) as worker:
        assert worker.queues == {"here": 10, "there": 10}
        for job_id in ids:
            await ended(connection, job_id)

    assert (await job(connection, other))["status"] == "pending"


async def test_no_more_jobs_run_at_once_than_there_are_slots(
    connection: Connection, database: str
) -> None:
    crowd = Crowd()
    await insert_some(connection, "brief", 100)
    async with embedded(database, crowd.registry, queues="default:7"):
        await all_ended(connection)

    assert crowd.most == 7


async def test_plain_handlers_run_beside_each_other_in_every_slot(
    connection: Connection, database: str
) -> None:
    registry = Registry()
    meeting = threading.Barrier(12, timeout=15)

    @registry.job("meet")
    def meet() -> None:
        meeting.wait()

    ids = [await insert(connection, "meet") for _ in range(12)]
    async with embedded(database, registry, queues="default:12"):
        for job_id in ids:
            assert (await ended(connection, job_id))["status"] == "completed"


async def test_a_slow_queue_does_not_hold_up_another(
    connection: Connection, database: str
) -> None:
    registry, go = waiting("slow", queue="slow")

    @registry.job("quick", queue="quick")
    async def quick() -> None: ...

    ids = [await insert(connection, "slow", queue="slow") for _ in range(50)]
    async with embedded(database, registry, queues="slow:2,quick:1"):
        for _ in range(3):
            await ended(connection, await insert(connection, "quick", queue="quick"))
        assert (await in_status(connection, ids[-1], "pending"))["attempt"] == 0
        go.set()
        await all_ended(connection)

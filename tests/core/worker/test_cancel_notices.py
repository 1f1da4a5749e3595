"""cancel_job tells the worker at once; what it tells is looked into, not believed."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import structlog

from pgwake import Job, Registry, Worker
from support import Connect, Connection, wait_for
from support.sql.helpers import call, insert, job, rows
from support.worker.helpers import embedded, ended, in_status, insert_some
from support.worker.metrics import gauge
from support.worker.registries import waiting

# Longer than any test: a renewal comes after 10 seconds, and a test ends before.
LEASE = 3600
WITHIN = 8.0


async def listens(worker: Worker) -> None:
    """Wait until a worker hears notifications."""

    await wait_for(lambda: gauge(worker, "listener_up") == 1)


@asynccontextmanager
async def one_that_sleeps(database: str, **settings: Any) -> AsyncIterator[Worker]:
    """A worker whose handler "sleep" sleeps until it is cancelled."""
    registry = Registry()

    @registry.job("sleep")
    async def sleep() -> None:
        await asyncio.sleep(3600)

    given = {"lease": LEASE, "grace": 0, **settings}
    async with embedded(database, registry, **given) as worker:
        await listens(worker)
        yield worker


async def test_a_running_job_hears_of_it_before_the_next_renewal(
    connection: Connection, database: str
) -> None:
    job_id = await insert(connection, "sleep")
    async with one_that_sleeps(database):
        await in_status(connection, job_id, "running")
        await call(connection, "cancel_job", job_id=job_id)
        row = await ended(connection, job_id, WITHIN)

    assert (row["status"], row["attempt"]) == ("cancelled", 1)


async def test_so_do_many_that_are_cancelled_together(
    connection: Connection, database: str
) -> None:
    await insert_some(connection, "sleep", 250)
    async with one_that_sleeps(database, queues="default:250") as worker:
        await wait_for(lambda: gauge(worker, "slots_busy") == 250)
        answer = await rows(connection, "cancel_jobs", kind="sleep")
        assert answer == [{"outcome": "cancel_requested", "job_count": 250}]

        async def all_are_cancelled() -> bool:
            count = "select count(*) from pgwake.jobs where status = 'cancelled'"
            return bool(await connection.fetchval(count) == 250)

        await wait_for(all_are_cancelled, WITHIN)


async def test_a_job_that_has_not_begun_ends_as_cancelled_and_is_not_begun(
    connection: Connection, database: str
) -> None:
    registry = Registry()
    go = asyncio.Event()
    begun: list[int] = []
    ahead: list[int] = []

    @registry.job("step")
    async def step(job: Job) -> None:
        begun.append(job.id)
        watchdog = worker._lifeline._watchdog  # type: ignore[union-attr]
        ready_jobs = watchdog._all_ready[0]
        if not ahead and ready_jobs.jobs:
            ahead.append(ready_jobs.jobs[-1].id)
            await go.wait()

    await insert_some(connection, "step", 500)
    worker = embedded(database, registry, lease=LEASE, queues="default:1")
    async with worker:
        await listens(worker)

        await wait_for(lambda: ahead)
        answer = await call(connection, "cancel_job", job_id=ahead[0])
        assert answer == "cancel_requested"
        await is_told(worker, ahead[0])
        go.set()
        row = await ended(connection, ahead[0], WITHIN)

    assert row["status"] == "cancelled"
    assert ahead[0] not in begun


async def is_told(worker: Worker, job_id: int) -> None:
    """Wait until a job that a worker holds has been told to stop."""

    async def should_stop() -> bool:
        held = list(worker._lifeline._renewal._held_jobs)  # type: ignore[union-attr]
        return any(job.should_stop for job in held if job.id == job_id)

    await wait_for(should_stop, WITHIN)


async def test_a_plain_handler_that_ends_as_if_nothing_had_been_said_is_cancelled(
    connection: Connection, database: str
) -> None:
    registry = Registry()
    go = threading.Event()
    told = threading.Event()

    @registry.job("deaf")
    def deaf(job: Job) -> str:
        go.wait()
        if job.should_stop:
            told.set()
        return "done"

    job_id = await insert(connection, "deaf")
    async with embedded(database, registry, lease=LEASE, cancel_grace=30) as worker:
        await listens(worker)
        await in_status(connection, job_id, "running")
        await call(connection, "cancel_job", job_id=job_id)
        await is_told(worker, job_id)
        go.set()
        row = await ended(connection, job_id, WITHIN)

    assert (row["status"], row["result"]) == ("cancelled", None)
    assert told.is_set()


async def test_a_job_that_is_done_before_it_is_told_is_completed(
    connect: Connect, connection: Connection, database: str
) -> None:
    quiet = await connect()
    await quiet.execute("set pgwake.notify = off")
    registry, go = waiting("quick")
    job_id = await insert(connection, "quick")
    async with embedded(database, registry, lease=LEASE) as worker:
        await listens(worker)
        await in_status(connection, job_id, "running")
        await call(quiet, "cancel_job", job_id=job_id)
        go.set()
        row = await ended(connection, job_id, WITHIN)

    assert (row["status"], row["result"]) == ("completed", "done")


NOISE: list[Callable[[str, int], str]] = [
    lambda worker, job_id: f'{{"worker": "{worker}", "jobs": [{job_id}]}}',
    lambda worker, job_id: f'{{"worker": "{worker}x", "jobs": [{job_id}]}}',
    lambda worker, _: f'{{"worker": "{worker}", "jobs": [1e400, -1, "x"]}}',
    lambda worker, _: f'{{"worker": "{worker}", "jobs": 7}}',
    lambda *_: "[]",
    lambda *_: "",
    lambda *_: "not JSON",
]


async def test_a_notification_that_nobody_has_asked_for_cancels_nothing(
    connection: Connection, database: str
) -> None:
    job_id = await insert(connection, "sleep")
    async with one_that_sleeps(database) as worker:
        row = await in_status(connection, job_id, "running")
        for noise in NOISE:
            before = row["lease_expires_at"]
            payload = noise(worker.name, job_id)
            await connection.execute("select pg_notify('pgwake_cancel', $1)", payload)
            # A job that is truly cancelled shows that the one before has been heard.
            other = await insert(connection, "sleep")
            await in_status(connection, other, "running")
            await call(connection, "cancel_job", job_id=other)
            await ended(connection, other, WITHIN)
            row = await job(connection, job_id)
            assert (row["status"], row["attempt"]) == ("running", 1)
            is_meant = noise is NOISE[0]
            assert (row["lease_expires_at"] > before) == is_meant  # it was looked into


async def test_what_is_no_cancellation_is_counted_and_is_one_line(
    connection: Connection, database: str
) -> None:
    deep = "[" * 3000
    with structlog.testing.capture_logs() as lines:
        async with one_that_sleeps(database) as worker:
            for news in ("x", deep, '{"worker": 1}', *map(str, range(50))):
                await connection.execute("select pg_notify('pgwake_cancel', $1)", news)
            await wait_for(lambda: gauge(worker, "bad_notifications") == 52)
            lifeline = worker._lifeline
            assert lifeline is not None
            asked: list[int] = []
            for start in range(0, 20_000, 500):
                ids = [*range(start, start + 500)]
                news = json.dumps({"worker": worker.name, "jobs": ids})
                lifeline._tell(lifeline._renewal.look, news)
            lifeline._tell(lambda: asked.append(len(lifeline._renewal._asked)))
            await wait_for(lambda: bool(asked))
            assert asked[0] <= 10_000
    told = [line for line in lines if line["log_level"] != "info"]
    assert [line["event"] for line in told] == ["cancellations not understood"]


async def test_with_notify_off_the_next_renewal_finds_it(
    connect: Connect, connection: Connection, database: str
) -> None:
    quiet = await connect()
    await quiet.execute("set pgwake.notify = off")
    job_id = await insert(connection, "sleep")
    async with one_that_sleeps(database, lease=2):
        await in_status(connection, job_id, "running")
        heard: list[object] = []
        await connection.add_listener("pgwake_cancel", lambda *news: heard.append(news))
        await call(quiet, "cancel_job", job_id=job_id)
        row = await ended(connection, job_id, WITHIN)

    assert (row["status"], heard) == ("cancelled", [])


async def test_a_job_can_still_be_cancelled_while_its_worker_waits_for_it(
    connection: Connection, database: str
) -> None:
    job_id = await insert(connection, "sleep")
    async with one_that_sleeps(database, grace=600) as worker:
        await in_status(connection, job_id, "running")
        worker.stop()

        await wait_for(lambda: worker._lifeline.health.is_draining)  # type: ignore[union-attr]
        await call(connection, "cancel_job", job_id=job_id)
        row = await ended(connection, job_id, WITHIN)

    assert row["status"] == "cancelled"

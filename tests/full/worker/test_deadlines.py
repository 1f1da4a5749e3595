"""A database that does not answer: nothing waits for it for ever."""

import asyncio
import contextlib
import gc
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from full.worker.test_database_faults import connected
from pgwake import Job, Registry
from pgwake.database.connection import Connection as OurConnection
from pgwake.database.embedded import EmbeddedServer
from pgwake.database.session import Session
from support import Connection, wait_for
from support.relay import Relay
from support.sql.helpers import insert, job
from support.worker.helpers import embedded, ended, in_status, sessions
from support.worker.metrics import gauge
from support.worker.registries import quick


async def test_what_is_in_flight_is_given_up_and_all_goes_on_by_new_sessions(
    connection: Connection, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pgwake.engine.lifeline.listener.PING_SECONDS", 0.3)
    registry = quick()
    go = asyncio.Event()
    begun: list[int] = []

    @registry.job("hold")
    async def hold(job: Job) -> None:
        async with job.transaction() as transaction:
            await transaction.execute("select 1")
            begun.append(job.id)
            await go.wait()

    async with Relay.before(database) as relay:  # noqa: SIM117
        async with embedded(relay.url, registry, query_timeout=1, lease=4) as worker:
            held = [await insert(connection, "hold") for _ in range(3)]
            await wait_for(lambda: len(begun) == 3)
            relay.freeze()
            await relay.heal()
            # Claims, ends and wake-ups; and leases, while handlers keep their sessions.
            await ended(connection, await insert(connection, "quick"))
            await wait_for(lambda: gauge(worker, "notify_lock_held"))
            await ended(connection, await insert(connection, "quick"))
            before = [(await job(connection, i))["lease_expires_at"] for i in held]

            async def are_renewed() -> bool:
                rows = [await job(connection, i) for i in held]
                return all(
                    row["lease_expires_at"] > was
                    for row, was in zip(rows, before, strict=True)
                )

            await wait_for(are_renewed)
            go.set()
            rows = [await ended(connection, job_id) for job_id in held]
    assert {row["status"] for row in rows} == {"completed"}
    assert {row["crash_count"] for row in rows} == {0}


@contextlib.contextmanager
def stopped(server: EmbeddedServer) -> Iterator[None]:
    """Stop a server's processes, as a machine does that swaps, and let them go on."""
    path = server.directory / "data" / "postmaster.pid"
    postmaster = int(path.read_text().split()[0])

    def send(number: signal.Signals) -> None:
        with open(f"/proc/{postmaster}/task/{postmaster}/children") as file:  # noqa: PTH123
            for pid in [postmaster, *map(int, file.read().split())]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)

    send(signal.SIGSTOP)
    try:
        yield
    finally:
        send(signal.SIGCONT)


async def test_a_server_that_stands_still_is_waited_for(
    spare_server: EmbeddedServer, spare_database: str
) -> None:
    registry = quick()
    go = asyncio.Event()

    @registry.job("wait", max_attempts=1)
    async def wait() -> None:
        await go.wait()

    async with embedded(spare_database, registry, query_timeout=1) as worker:  # noqa: SIM117
        async with connected(spare_database) as connection:
            job_id = await insert(connection, "wait")
            await in_status(connection, job_id, "running")
            with stopped(spare_server):
                go.set()
                await asyncio.sleep(2)  # longer than a time-out
            row = await ended(connection, job_id)
            await ended(connection, await insert(connection, "quick"))
            await wait_for(lambda: gauge(worker, "notify_lock_held"))

            async def as_many_as_before() -> bool:
                return len(await sessions(connection)) <= 5

            await wait_for(as_many_as_before)
    assert (row["status"], row["errors"]) == ("completed", None)


async def test_a_stop_waits_neither_for_a_silent_database_nor_for_who_asks_it(
    connection: Connection, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pgwake.engine.worker.CLAIM_DEADLINE", 0.5)
    monkeypatch.setattr("pgwake.engine.worker.FLUSH_DEADLINE", 0.5)
    registry = Registry()
    told: list[str] = []

    @registry.job("hold")
    async def hold(job: Job) -> None:
        async with job.transaction() as transaction:
            try:
                await transaction.execute("set local statement_timeout = 0")
                told.append("begun")
                await transaction.execute("select pg_sleep(60)")
            except asyncio.CancelledError:
                told.append(str(job.stop_reason))
                raise

    settings = {"query_timeout": 1, "grace": 0.5, "cancel_grace": 2}
    async with Relay.before(database) as relay:
        async with embedded(relay.url, registry, **settings):
            job_id = await insert(connection, "hold")
            await wait_for(lambda: told)
            relay.freeze()
        assert told == ["begun", "shutdown"]
    assert (await job(connection, job_id))["status"] == "running"  # for its lease


async def test_a_statement_can_be_given_up_when_nobody_takes_its_cancellation(
    database: str,
) -> None:
    problems: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, problem: problems.append(problem))

    async def sleep(connection: OurConnection) -> None:
        await connection.execute("set statement_timeout = 0; select pg_sleep(60)")

    async with Relay.before(database) as relay:
        before = len(asyncio.all_tasks())
        session = Session(relay.url, "pgwake:test", "test", 1)
        await session.call(lambda connection: connection.execute("select 1"))
        relay.refuse()
        asking = asyncio.create_task(session.call(sleep))
        await wait_for(lambda: session.fault is not None)
        asking.cancel()
        await asyncio.wait({asking})
        await wait_for(lambda: len(asyncio.all_tasks()) <= before, 5)
    gc.collect()
    assert problems == []

"""A worker that the database does not fit says so, waits, and goes on by itself."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import monotonic
from typing import Any, NamedTuple

import pytest
from structlog.testing import capture_logs

from full.worker.test_http import answers
from pgwake import Registry, Worker
from pgwake.database.install import install
from pgwake.errors import ConfigurationError
from pgwake.version import SCHEMA_VERSION
from support import Connect, Connection, free_port, wait_for
from support.sql.helpers import insert, status
from support.worker.helpers import embedded, ended, in_status, settings
from support.worker.metrics import fetch
from support.worker.processes import StartProcess
from support.worker.registries import quick

PRODUCTION = "update pgwake.installation set environment = 'production'"


class Misfit(NamedTuple):
    """What does not fit: how it is made and mended, and what is said of it."""

    make: str
    mend: str
    said: tuple[str, ...]


MISFITS = {
    "older": Misfit(
        "update pgwake.schema_version set version = version - 1",
        "update pgwake.schema_version set version = version + 1",
        (f"pgwake schema {SCHEMA_VERSION - 1}", "pgwake init"),
    ),
    "newer": Misfit(
        "update pgwake.schema_version set version = 999, serves_from = 998",
        "update pgwake.schema_version set version = 999, serves_from = 1",
        ("pgwake schema 999", "run a newer pgwake"),
    ),
    "copy": Misfit(
        "update pgwake.installation set identity = '1:2'",
        "select pgwake.adopt()",
        ("is a copy", "for 1:2, environment 'production'", "pgwake adopt"),
    ),
    "another environment": Misfit(
        "update pgwake.installation set environment = 'staging'",
        PRODUCTION,
        ("environment 'staging'", "PGWAKE_ENVIRONMENT", "'production'"),
    ),
    "no environment": Misfit(
        "update pgwake.installation set environment = null",
        PRODUCTION,
        ("no environment", "pgwake adopt --environment"),
    ),
}
misfits = pytest.mark.parametrize("misfit", MISFITS.values(), ids=MISFITS)


@pytest.fixture(autouse=True)
async def _it_looks_often(
    monkeypatch: pytest.MonkeyPatch, connection: Connection
) -> None:
    monkeypatch.setattr("pgwake.observe.database_fit.OPEN_SECONDS", 0.1)
    monkeypatch.setattr("pgwake.observe.database_fit.SHUT_SECONDS", 0.1)
    monkeypatch.setattr("pgwake.engine.upkeep.MISFIT_SECONDS", 0.1)
    await connection.execute(PRODUCTION)


@asynccontextmanager
async def supervised(
    database: str, port: int, registry: Registry | None = None, **changes: Any
) -> AsyncIterator[tuple[Worker, int]]:
    """A worker as the supervisor starts it, and where its beats are read."""
    beats, beat_fd = os.pipe()
    given = settings(database, http_port=port, environment="production", **changes)
    worker = Worker(given, registry or quick(), beat_fd=beat_fd)
    run = asyncio.create_task(worker.run())
    try:
        yield worker, beats
        worker.stop()
        async with asyncio.timeout(15):
            await run
    finally:
        run.cancel()
        os.close(beats)
        os.close(beat_fd)


async def refusal(port: int, misfit: Misfit) -> None:
    """Wait until the worker says what does not fit; it is alive."""

    async def is_said() -> bool:
        problems = " ".join(await answers(port, "/readyz", 503))
        return all(words in problems for words in misfit.said)

    await wait_for(is_said)
    assert (await fetch(port, "/healthz")).status == 200


@misfits
async def test_a_worker_waits_until_the_database_fits(
    connection: Connection, database: str, misfit: Misfit
) -> None:
    await connection.execute(misfit.make)
    job_id, port = await insert(connection, "quick"), free_port()
    with capture_logs() as logs:
        async with supervised(database, port) as (_, beats):
            await refusal(port, misfit)
            await asyncio.sleep(0.5)
            assert set(os.read(beats, 99)) == set(b"-")
            assert await status(connection, job_id) == "pending"
            assert not await connection.fetch("select from pgwake.workers")

            await connection.execute(misfit.mend)
            await ended(connection, job_id)
            await answers(port, "/readyz", 200)

    (said,) = [line for line in logs if line["log_level"] == "error"]
    assert said["event"] == "database not usable"
    assert all(words in said["problem"] for words in misfit.said)


async def test_a_worker_waits_for_the_schema(
    connection: Connection, connect: Connect, database: str
) -> None:
    await connection.execute("drop schema pgwake cascade")
    port = free_port()
    async with supervised(database, port):
        await refusal(port, Misfit("", "", ("no pgwake schema", "pgwake init")))
        await install(database)
        await connection.execute(PRODUCTION)
        fresh = await connect()
        await ended(fresh, await insert(fresh, "quick"))


async def test_a_worker_waits_for_its_rights(
    connection: Connection, database: str, admin_url: str, connect: Connect
) -> None:
    admin = await connect(admin_url)
    await admin.execute("alter table pgwake.schema_version owner to postgres")
    port = free_port()
    async with supervised(database, port):
        await refusal(port, Misfit("", "", ("permission denied",)))
        await admin.execute("alter table pgwake.schema_version owner to pgwake_owner")
        await ended(connection, await insert(connection, "quick"))


async def test_what_does_not_fit_is_said_again_but_not_at_each_look(
    connection: Connection, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pgwake.observe.database_fit.SHUT_SECONDS", 0.01)
    monkeypatch.setattr("pgwake.observe.database_fit.SAY_SECONDS", 0.3)
    await connection.execute(MISFITS["copy"].make)
    begun = monotonic()
    with capture_logs() as logs:
        async with supervised(database, 0):
            await wait_for(
                lambda: sum(one["event"] == "database not usable" for one in logs) > 2
            )
    assert monotonic() - begun > 0.6  # twice what lies between


@pytest.mark.parametrize("misfit", list(MISFITS.values())[1:3], ids=["newer", "copy"])
async def test_a_worker_at_work_claims_nothing_more_and_goes_on(
    connection: Connection, database: str, misfit: Misfit
) -> None:
    registry, go, port = quick(), asyncio.Event(), free_port()

    @registry.job("slow")
    async def slow() -> str:
        await go.wait()
        return "done"

    slow_id = await insert(connection, "slow")
    async with embedded(database, registry, http_port=port, environment="production"):
        await in_status(connection, slow_id, "running")
        await wait_for(lambda: connection.fetchval("select true from pgwake.workers"))
        await connection.execute(misfit.make)
        await refusal(port, misfit)
        job_id = await insert(connection, "quick")
        go.set()
        assert (await ended(connection, slow_id))["result"] == "done"
        # Not a day, after which an upkeep that is under way may forget it.
        seen_at = await connection.fetchval(
            "update pgwake.workers set seen_at = now() - interval '1 hour'"
            " returning seen_at"
        )
        await asyncio.sleep(0.5)
        assert await status(connection, job_id) == "pending"
        seen_since = await connection.fetchval("select seen_at from pgwake.workers")
        assert seen_since == seen_at

        await connection.execute(misfit.mend)
        await ended(connection, job_id)
        await answers(port, "/readyz", 200)


async def test_a_worker_that_has_shut_stops_at_once(
    connection: Connection, database: str
) -> None:
    port = free_port()
    async with embedded(database, quick(), http_port=port) as worker:
        await answers(port, "/readyz", 200)
        await connection.execute(MISFITS["copy"].make)
        await refusal(port, MISFITS["copy"])
        job_id = await insert(connection, "quick")
        worker.stop()
    assert await status(connection, job_id) == "pending"


@misfits
async def test_a_worker_in_an_application_that_can_not_start_says_why(
    connection: Connection, database: str, misfit: Misfit
) -> None:
    await connection.execute(misfit.make)
    with pytest.raises(ConfigurationError) as raised:
        async with embedded(database, quick(), environment="production"):
            pass
    assert all(words in str(raised.value) for words in misfit.said)


async def test_claims_that_find_a_copy_first_are_not_repeated_at_each_notification(
    connection: Connection, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pgwake.observe.database_fit.OPEN_SECONDS", 3600.0)
    port = free_port()
    await connection.execute(
        "insert into pgwake.queues (name, wakeups) values ('default', 'always')"
    )
    with capture_logs() as logs:
        async with embedded(database, quick(), http_port=port):
            await answers(port, "/readyz", 200)
            await connection.execute(MISFITS["copy"].make)
            await connection.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity"
                " where datname = current_database() and query like '%claim_rows%'"
                " and pid <> pg_backend_pid()"
            )
            ids = [await insert(connection, "quick") for _ in range(100)]
            await answers(port, "/readyz", 503)
            assert await status(connection, ids[-1]) == "pending"
    assert len([line for line in logs if line["event"] == "claim refused"]) < 5


async def test_the_command_waits_too_and_ends_well(
    connection: Connection, database: str, start_process: StartProcess
) -> None:
    await connection.execute(MISFITS["copy"].make)
    await insert(connection, "note", crash_count=2)  # a suspect, for the quarantine
    process = await start_process(
        "-m", "pgwake", "run", database_url=database, processes=1
    )
    await process.logged("database not usable", level="error")
    process.send(signal.SIGTERM)
    assert await process.exit_code() == 0
    assert len(process.children) == 1
    assert process.log("process died") == process.log("give-back refused") == []

"""/healthz and /readyz under real faults: what each says, and that it passes."""

import asyncio
import re
from contextlib import suppress
from time import monotonic

import pytest

from full.worker.test_http import answers
from pgwake import Registry, Worker
from pgwake.database.embedded import EmbeddedServer
from pgwake.version import SCHEMA_VERSION
from support import Connect, Connection, free_port
from support.relay import Relay
from support.sql.helpers import insert
from support.worker.helpers import embedded, ended
from support.worker.metrics import fetch
from support.worker.registries import quick

NO_ANSWER = "the database does not answer"
READ_ONLY = "the database is read-only"


async def _never(*_: object) -> None:
    await asyncio.Event().wait()


@pytest.fixture(autouse=True)
def _patience_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pgwake.heartbeat.SILENT_SECONDS", 6.0)
    monkeypatch.setattr("pgwake.observe.health.DATABASE_SECONDS", 4.0)
    monkeypatch.setattr("pgwake.observe.database_fit.OPEN_SECONDS", 0.2)
    monkeypatch.setattr("pgwake.observe.database_fit.SHUT_SECONDS", 0.2)
    monkeypatch.setattr("pgwake.engine.worker.FLUSH_DEADLINE", 0.5)


def impatient(
    database: str, port: int, registry: Registry | None = None, **settings: object
) -> Worker:
    """A worker whose loops may be silent for six seconds."""
    given = {"poll_interval": 0.3, "query_timeout": 1.5, **settings}
    return embedded(database, registry or quick(), http_port=port, **given)


async def stays_alive(port: int, seconds: float = 6.4) -> None:
    """Look for longer than a loop may be silent."""
    until = monotonic() + seconds
    while monotonic() < until:
        page = await fetch(port, "/healthz")
        assert page.status == 200, page.text
        await asyncio.sleep(0.2)


@pytest.mark.parametrize(
    ("broken", "named"),
    [
        ("claimer.Claimer._rest", "the claims of queue default"),
        ("finisher.Finisher._flush", "the writing of ends"),
        ("scheduler.Scheduler.fire_due", "the upkeep"),
        ("lifeline.renewal.pause", "the renewal of leases"),
    ],
)
async def test_a_loop_that_stands_still_is_named(
    connection: Connection,
    database: str,
    monkeypatch: pytest.MonkeyPatch,
    broken: str,
    named: str,
) -> None:
    port = free_port()
    async with impatient(database, port):
        assert await answers(port, "/readyz", 200) == []
        monkeypatch.setattr(f"pgwake.engine.{broken}", _never)
        await insert(connection, "quick")
        (problem,) = await answers(port, "/healthz", 503)
        assert problem.startswith(f"{named}: stalled for ")
        (obstacle,) = await answers(port, "/readyz", 503)
        assert obstacle.startswith(f"{named}: stalled for ")


async def test_a_statement_that_outlives_its_deadline_is_named(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    port, done = free_port(), asyncio.Event()

    async def claim_rows(*_: object, **__: object) -> None:
        while not done.is_set():
            with suppress(asyncio.CancelledError):
                await done.wait()
        raise TimeoutError

    async with impatient(database, port):
        await answers(port, "/readyz", 200)
        with monkeypatch.context() as patch:
            patch.setattr("pgwake.engine.claimer.claim_rows", claim_rows)
            try:
                (problem,) = await answers(port, "/healthz", 503)
            finally:
                done.set()
        assert problem.startswith("the claims of queue default: stalled for ")
        await answers(port, "/readyz", 200)


@pytest.mark.parametrize("crash_count", [0, 2])
async def test_who_has_all_slots_busy_or_drains_is_alive(
    connection: Connection, database: str, crash_count: int
) -> None:
    port, registry, go = free_port(), Registry(), asyncio.Event()

    @registry.job("slow")
    async def slow() -> None:
        await go.wait()

    job_id = await insert(connection, "slow", crash_count=crash_count)
    async with impatient(database, port, registry, queues="default:1") as worker:
        await answers(port, "/readyz", 200)
        await stays_alive(port)
        worker.stop()
        assert await answers(port, "/readyz", 503) == ["draining"]
        await stays_alive(port)
        go.set()
        await ended(connection, job_id)


async def test_while_the_database_is_stopped_a_restart_would_not_help(
    spare_server: EmbeddedServer, spare_database: str
) -> None:
    port = free_port()
    async with impatient(spare_database, port):
        await answers(port, "/readyz", 200)
        await asyncio.to_thread(spare_server._halt, "immediate")
        assert await answers(port, "/readyz", 503) == [NO_ANSWER]
        await stays_alive(port)
        await asyncio.to_thread(spare_server._launch)
        await answers(port, "/readyz", 200)


async def test_while_the_database_is_silent_a_restart_would_not_help(
    database: str,
) -> None:
    port = free_port()
    async with Relay.before(database) as relay, impatient(relay.url, port):
        await answers(port, "/readyz", 200)
        relay.freeze()
        assert await answers(port, "/readyz", 503) == [NO_ANSWER]
        await stays_alive(port)
        await relay.heal()
        await answers(port, "/readyz", 200)


async def test_while_a_table_is_locked_a_restart_would_not_help(
    connection: Connection, connect: Connect, database: str
) -> None:
    port, locker = free_port(), await connect()
    async with impatient(database, port):
        await answers(port, "/readyz", 200)
        async with locker.transaction():
            await locker.execute("lock table pgwake.jobs_live")
            await answers(port, "/readyz", 503)
            await stays_alive(port)
        await answers(port, "/readyz", 200)
        await ended(connection, await insert(connection, "quick"))


async def test_a_database_that_takes_no_writes_is_named(
    connection: Connection, database: str
) -> None:
    port, name = free_port(), database.rpartition("/")[2]
    setting = "default_transaction_read_only"
    async with impatient(database, port):
        await answers(port, "/readyz", 200)
        await connection.execute(f"alter database {name} set {setting} = on")
        await connection.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where datname = current_database() and pid <> pg_backend_pid()"
        )
        assert await answers(port, "/readyz", 503) == [READ_ONLY]
        await stays_alive(port)
        await connection.execute(f"alter database {name} reset {setting}")
        await answers(port, "/readyz", 200)


@pytest.mark.parametrize(
    ("fault", "mended", "said"),
    [
        (
            "update pgwake.schema_version set version = 999, serves_from = 998",
            (
                f"update pgwake.schema_version set version = {SCHEMA_VERSION},"
                " serves_from = 1"
            ),
            "pgwake schema 999.*run a newer pgwake",
        ),
        (
            "alter function pgwake.claim_rows rename to gone",
            "alter function pgwake.gone rename to claim_rows",
            "the claims of queue default: the database refuses it, see the log$",
        ),
    ],
    ids=["schema", "claims"],
)
async def test_what_the_database_refuses_is_named(
    connection: Connection, database: str, fault: str, mended: str, said: str
) -> None:
    port = free_port()
    async with impatient(database, port):
        await answers(port, "/readyz", 200)
        await connection.execute(fault)
        (obstacle,) = await answers(port, "/readyz", 503)
        assert re.search(said, obstacle)
        await stays_alive(port)
        await connection.execute(mended)
        await answers(port, "/readyz", 200)

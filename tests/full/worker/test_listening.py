"""The listener's session: half-open, stopped, and the server's queue behind it."""

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from pgwake.database.binaries import server_version
from pgwake.database.embedded import EmbeddedServer
from support import Connect, Connection, create_installed_database, wait_for
from support.relay import Relay
from support.sql.helpers import call, insert, refused
from support.worker.helpers import all_ended, embedded, ended, sessions
from support.worker.metrics import gauge
from support.worker.processes import Diary, StartProcess
from support.worker.registries import quick

# Nearly the longest payload that there is, and never the same.
LOAD = """
select pg_notify($1, rpad(n || random()::text, 7900, 'x'))
from generate_series(1, $2::int) as n
"""
IS_SMALL = """
exists (select from pg_settings where name = 'max_notify_queue_pages')
"""
USAGE = "select pg_notification_queue_usage()"


async def test_a_half_open_session_is_found_by_its_ping_and_replaced(
    connection: Connection, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pgwake.engine.lifeline.listener.PING_SECONDS", 0.3)
    async with (
        Relay.before(database) as relay,
        embedded(database, quick(), listen_url=relay.url, query_timeout=4) as worker,
    ):
        await wait_for(lambda: gauge(worker, "notify_lock_held"))

        async def has_only_pings_left() -> bool:
            rows = await sessions(connection)
            return any("transaction_read_only" in row["query"] for row in rows)

        await wait_for(has_only_pings_left)
        relay.freeze()
        job_id = await insert(connection, "quick")
        await wait_for(lambda: gauge(worker, "listener_up") == 0)
        await relay.heal()
        # It has missed the notification, and has an hour until its poll.
        await ended(connection, job_id)
        await wait_for(lambda: gauge(worker, "notify_lock_held"))
        await ended(connection, await insert(connection, "quick"))

        assert gauge(worker, "listener_up") == 1


async def test_the_metric_shows_how_full_the_servers_queue_is(
    connection: Connection,
    connect: Connect,
    database: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pgwake.engine.upkeep.SAMPLE_SECONDS", 0.1)
    idler = await connect()
    await idler.execute("listen elsewhere")
    await idler.execute("begin")
    async with embedded(database, quick()) as worker:
        await connection.fetch(LOAD, "elsewhere", 2000)
        name = "notification_queue_usage"
        await wait_for(lambda: gauge(worker, name) > 0.001)
        await idler.execute("rollback")

        async def is_emptied() -> bool:
            await connection.fetch(LOAD, "elsewhere", 2)
            return gauge(worker, name) < 0.001

        await wait_for(is_emptied)


async def test_a_worker_under_load_keeps_no_notification_in_the_servers_queue(
    connection: Connection, database: str
) -> None:
    async with embedded(database, quick()) as worker:
        await wait_for(lambda: gauge(worker, "notify_lock_held"))
        for _ in range(20):
            await connection.fetch(LOAD, "pgwake", 200)
            await insert(connection, "quick")
            states = [row["state"] for row in await sessions(connection)]
            assert "idle in transaction" not in states
        await all_ended(connection)

        async def is_emptied() -> bool:
            await connection.fetch(LOAD, "pgwake", 2)
            usage: float = await connection.fetchval(USAGE)
            return usage < 0.0001

        await wait_for(is_emptied)


async def test_a_stopped_worker_is_ended_before_it_fills_the_servers_queue(
    connection: Connection, start_worker: StartProcess, diary: Diary
) -> None:
    worker = await start_worker(stall_timeout=3)
    await insert(connection, "note")
    (entry,) = await diary.has()
    os.kill(entry["pid"], signal.SIGSTOP)
    usages = []
    while not worker.log("process died"):
        await connection.fetch(LOAD, "pgwake", 200)
        usages.append(await connection.fetchval(USAGE))
    assert max(usages) > 0.0005
    await worker.logged("process started", count=2)

    async def is_emptied() -> bool:
        await connection.fetch(LOAD, "elsewhere", 2)
        usage: float = await connection.fetchval(USAGE)
        return usage < 0.0001

    await wait_for(is_emptied)
    await ended(connection, await insert(connection, "note"))


@pytest.fixture
def small_server(binaries: Path) -> Iterator[EmbeddedServer]:
    """A server whose queue of notifications is soon full, where that can be set."""
    major = int(re.split(r"\D", server_version(binaries))[0])  # of 17.6, of 19rc1
    settings = {"max_notify_queue_pages": "64"} if major >= 17 else {}
    with EmbeddedServer(binaries=binaries, settings=settings) as server:
        yield server


async def test_a_full_queue_refuses_only_those_who_have_somebody_to_wake(
    small_server: EmbeddedServer, connect: Connect
) -> None:
    url = create_installed_database(small_server, "pgwake_small")
    idler, producer = await connect(url), await connect(url)
    await idler.execute("listen elsewhere")
    await call(idler, "park", queue="asleep")
    await idler.execute("begin")
    if not await producer.fetchval(f"select {IS_SMALL}"):
        pytest.skip("before PostgreSQL 17 it takes 8 GB to fill it")
    with refused("54000") as caught:
        for _ in range(100):
            await producer.fetch(LOAD, "elsewhere", 10)

    assert "NOTIFY queue" in str(caught.value)
    await insert(producer)
    with refused("54000") as caught:
        await insert(producer, queue="asleep")
    assert "NOTIFY queue" in str(caught.value)
    await producer.execute("set pgwake.notify = off")
    await insert(producer, queue="asleep")
    assert await producer.fetchval(f"{USAGE} > 0.9")
    assert await producer.fetchval("select count(*) from pgwake.jobs_live") == 2

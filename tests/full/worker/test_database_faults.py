"""The database goes and comes back: every loop recovers, and nothing ends twice."""

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg

from pgwake import Registry
from pgwake.database.embedded import EmbeddedServer
from support import Connection, wait_for
from support.sql.helpers import insert
from support.worker.helpers import embedded, ended
from support.worker.metrics import gauge
from support.worker.processes import Diary, StartProcess


async def stop_for_a_while(server: EmbeddedServer) -> None:
    await asyncio.to_thread(server._halt, "fast")
    await asyncio.sleep(3)  # the outage itself, longer than a lease of 2 s
    await asyncio.to_thread(server._launch)


async def restart_fast(server: EmbeddedServer) -> None:
    await asyncio.to_thread(server.restart, "fast")


async def restart_immediate(server: EmbeddedServer) -> None:
    await asyncio.to_thread(server.restart, "immediate")


async def kill_a_backend(server: EmbeddedServer) -> None:
    """Kill -9 a backend, upon which the server ends all others and recovers."""
    connection = await asyncpg.connect(server.url)
    pid = await connection.fetchval("select pg_backend_pid()")
    try:
        # Its backends are the children of the process that postmaster.pid names.
        path = server.directory / "data" / "postmaster.pid"
        postmaster = int(path.read_text().split()[0])
        assert_child(pid, postmaster)
        os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(asyncpg.PostgresError, OSError):
            async with asyncio.timeout(10):
                await connection.execute("select pg_sleep(10)")
    finally:
        connection.terminate()


def assert_child(pid: int, parent: int) -> None:
    status = Path(f"/proc/{pid}/status").read_text()
    assert f"PPid:\t{parent}\n" in status


FAULTS = [restart_fast, restart_immediate, stop_for_a_while, kill_a_backend]


@contextlib.asynccontextmanager
async def connected(url: str) -> AsyncIterator[Connection]:
    """Connect to a server that may be on its way up."""
    connection: Connection | None = None
    while connection is None:
        try:
            connection = await asyncpg.connect(url)
        except (OSError, asyncpg.PostgresError):
            await asyncio.sleep(0.05)
    try:
        yield connection
    finally:
        connection.terminate()


async def test_all_loops_recover_after_a_fault_of_the_server(
    spare_server: EmbeddedServer,
    spare_database: str,
    start_process: StartProcess,
    diary: Diary,
    tmp_path: Path,
) -> None:
    worker = await start_process(
        *("-m", "pgwake", "run", "--queue", "default:3"), database_url=spare_database
    )
    await worker.started()
    for fault in FAULTS:
        go = tmp_path / fault.__name__
        async with connected(spare_database) as connection:
            payload = json.dumps({"until": str(go)})
            in_flight = await insert(connection, "hold", payload=payload)
            await diary.has(job=in_flight, event="start")
        await fault(spare_server)
        go.touch()

        async with connected(spare_database) as connection:
            row = await ended(connection, in_flight)
            assert (row["status"], row["attempt"]) == ("completed", 1), fault
            assert (row["crash_count"], row["errors"]) == (0, None)
            # The listener is up again when a job is started though the poll is an
            # hour off.
            await ended(connection, await insert(connection, "noop"))
            later = await connection.fetchval("select now() + interval '0.5 seconds'")
            await ended(connection, await insert(connection, "noop", run_at=later))
        assert len(diary.entries(job=in_flight, event="start")) == 1
    assert len(worker.children) == 1


async def test_an_end_that_finds_the_server_gone_is_written_when_it_is_back(
    spare_server: EmbeddedServer, spare_database: str
) -> None:
    registry = Registry()
    go = asyncio.Event()
    starts = 0

    @registry.job("wait", max_attempts=1)
    async def wait() -> str:
        nonlocal starts
        starts += 1
        await go.wait()
        return "done"

    async with connected(spare_database) as connection:
        ids = [await insert(connection, "wait") for _ in range(3)]
    async with embedded(spare_database, registry) as worker:
        await wait_for(lambda: starts == 3)
        await asyncio.to_thread(spare_server._halt, "immediate")
        await wait_for(lambda: gauge(worker, "listener_up") == 0)
        go.set()
        await wait_for(lambda: gauge(worker, "slots_busy") == 0)
        await asyncio.to_thread(spare_server._launch)
        async with connected(spare_database) as connection:
            for job_id in ids:
                row = await ended(connection, job_id)
                assert (row["status"], row["errors"]) == ("completed", None)
        await wait_for(lambda: gauge(worker, "listener_up") == 1)

    assert starts == 3


async def test_an_outage_longer_than_the_lease_steals_no_job(
    spare_server: EmbeddedServer,
    spare_database: str,
    start_process: StartProcess,
    diary: Diary,
) -> None:
    for _ in range(2):
        application = await start_process(
            "-m", "support.worker.application", database_url=spare_database, lease=2
        )
        await application.started()
    async with connected(spare_database) as connection:
        ids = [
            await insert(connection, "nap", payload='{"seconds": 7}') for _ in range(10)
        ]
        await diary.has(10, event="start")
    await stop_for_a_while(spare_server)

    async with connected(spare_database) as connection:
        rows = [await ended(connection, job_id) for job_id in ids]
    assert [row["crash_count"] for row in rows] == [0] * 10
    assert len(diary.entries(event="start")) == 10


async def test_a_signal_while_the_server_is_gone_ends_the_worker_in_time(
    spare_server: EmbeddedServer,
    spare_database: str,
    start_process: StartProcess,
    diary: Diary,
    tmp_path: Path,
) -> None:
    # The last ends may take 10 s otherwise.
    (tmp_path / "impatient.py").write_text(
        "import support.worker.handlers, pgwake.engine.worker\n"
        "pgwake.engine.worker.FLUSH_DEADLINE = 1.0\n"
    )
    worker = await start_process(
        *("-m", "pgwake", "run"),
        database_url=spare_database,
        grace=1,
        imports="impatient",
    )
    await worker.started()
    async with connected(spare_database) as connection:
        await insert(connection, "nap", payload='{"seconds": 60}')
        await diary.has(event="start")
    await asyncio.to_thread(spare_server._halt, "immediate")
    worker.send(signal.SIGTERM)

    # Grace, cancel grace and the last ends of 1 s each, 5 s for the give-back.
    assert await worker.exit_code(within=20) == 0

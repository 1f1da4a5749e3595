"""The database goes and comes back: every loop recovers, and nothing ends twice."""

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from pathlib import Path
from time import monotonic

import asyncpg
import pytest

from pgwake import Registry, Worker
from pgwake.embedded import EmbeddedServer
from sql.helpers import insert, job, set_queue
from support import Connect, Connection, database_url, wait_for
from worker.helpers import (
    Diary,
    Samples,
    StartProcess,
    all_ended,
    embedded,
    ended,
    reasons,
    sessions,
)

pytestmark = pytest.mark.timeout(90)


def gauge(worker: Worker, name: str) -> float:
    return Samples(worker.metrics.render()).total(f"pgwake_{name}")


async def stop_for_a_while(server: EmbeddedServer) -> None:
    await asyncio.to_thread(server._halt, "fast")
    await asyncio.sleep(3)  # the outage itself
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


@pytest.mark.parametrize("fault", FAULTS)
async def test_all_loops_recover_after_a_fault_of_the_server(
    own_server: EmbeddedServer,
    own_database: str,
    start_process: StartProcess,
    diary: Diary,
    tmp_path: Path,
    fault: Callable[[EmbeddedServer], "asyncio.Future[None]"],
) -> None:
    worker = await start_process(
        *("-m", "pgwake", "run", "--queue", "default:3"), database_url=own_database
    )
    await worker.started()
    go = tmp_path / "go"
    async with connected(own_database) as connection:
        in_flight = await insert(
            connection, "hold", payload=json.dumps({"until": str(go)})
        )
        await diary.has(event="start")
    await fault(own_server)
    go.touch()

    async with connected(own_database) as connection:
        row = await ended(connection, in_flight)
        assert (row["status"], row["attempt"]) == ("completed", 1)
        assert (row["crash_count"], row["errors"]) == (0, None)
        # The listener is up again when a job is started though the poll is an hour off.
        begun = monotonic()
        await ended(connection, await insert(connection, "noop"))
        later = await connection.fetchval("select now() + interval '0.5 seconds'")
        await ended(connection, await insert(connection, "noop", run_at=later))
        assert monotonic() - begun < 15

    assert len(diary.entries(event="start")) == 1
    assert len(worker.children) == 1


async def test_an_end_that_finds_the_server_gone_is_written_when_it_is_back(
    own_server: EmbeddedServer, own_database: str
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

    async with connected(own_database) as connection:
        ids = [await insert(connection, "wait") for _ in range(3)]
    async with embedded(own_database, registry) as worker:
        await wait_for(lambda: asyncio.sleep(0, starts == 3))
        await asyncio.to_thread(own_server._halt, "immediate")
        await wait_for(lambda: asyncio.sleep(0, gauge(worker, "listener_up") == 0))
        go.set()
        await wait_for(lambda: asyncio.sleep(0, gauge(worker, "slots_busy") == 0))
        await asyncio.to_thread(own_server._launch)
        async with connected(own_database) as connection:
            for job_id in ids:
                row = await ended(connection, job_id)
                assert (row["status"], row["errors"]) == ("completed", None)
        await wait_for(lambda: asyncio.sleep(0, gauge(worker, "listener_up") == 1))

    assert starts == 3


async def test_an_outage_longer_than_the_lease_steals_no_job(
    own_server: EmbeddedServer,
    own_database: str,
    start_process: StartProcess,
    diary: Diary,
) -> None:
    for _ in range(2):
        application = await start_process(
            "-m", "worker.application", database_url=own_database, lease=2
        )
        await application.started()
    async with connected(own_database) as connection:
        ids = [
            await insert(connection, "nap", payload='{"seconds": 9}') for _ in range(10)
        ]
        await diary.has(10, event="start")
    await stop_for_a_while(own_server)

    async with connected(own_database) as connection:
        rows = [await ended(connection, job_id) for job_id in ids]
    assert [row["crash_count"] for row in rows] == [0] * 10
    assert len(diary.entries(event="start")) == 10


async def test_a_signal_while_the_server_is_gone_ends_the_worker_in_time(
    own_server: EmbeddedServer,
    own_database: str,
    start_process: StartProcess,
    diary: Diary,
) -> None:
    worker = await start_process(
        *("-m", "pgwake", "run"), database_url=own_database, grace=1
    )
    await worker.started()
    async with connected(own_database) as connection:
        await insert(connection, "nap", payload='{"seconds": 60}')
        await diary.has(event="start")
    await asyncio.to_thread(own_server._halt, "immediate")
    worker.send(signal.SIGTERM)

    # Grace and cancel grace of 1 s, 10 s for the last ends, 5 s for the give-back.
    assert await worker.exit_code(within=25) == 0


async def terminate_all(admin: Connection) -> int:
    """End every session of the workers; how many there were."""
    count: int = await admin.fetchval(
        "select count(pg_terminate_backend(pid)) from pg_stat_activity"
        " where application_name like 'pgwake:%' and datname = current_database()"
    )
    return count


async def test_sessions_do_not_grow_however_often_they_are_ended(
    connection: Connection,
    admin_url: str,
    connect: Connect,
    start_worker: StartProcess,
) -> None:
    worker = await start_worker()
    admin = await connect(admin_url)
    await ended(connection, await insert(connection, "noop"))
    pauses = [0.0, 0.05, 0.1, 0.3, 0.02]
    for n in range(20):
        await terminate_all(admin)
        await asyncio.sleep(pauses[n % len(pauses)])
    await ended(connection, await insert(connection, "noop"))

    async def as_documented() -> bool:
        found = [row["application_name"] for row in await sessions(connection)]
        children = [n for n in found if f":{worker.children[0]}:" in n]
        # claims, ends, upkeep, lifeline, listener; and one of the supervisor.
        return len(children) <= 5 and len(found) <= 6

    await wait_for(as_documented, 10)
    assert len(worker.children) == 1


async def test_a_worker_has_five_sessions_however_many_slots_and_queues(
    connection: Connection, database: str
) -> None:
    registry = Registry()
    go = asyncio.Event()

    @registry.job("wait")
    async def wait() -> None:
        await go.wait()

    @registry.job("quick")
    async def quick() -> None: ...

    names = [f"q{n}" for n in range(6)]
    for name in names:
        await insert(connection, "wait", queue=name)
        await insert(connection, "quick", queue=name)
    queues = ",".join(f"{name}:50" for name in names)
    async with embedded(database, registry, queues=queues, lease=1):

        async def every_session_is_there() -> bool:
            return len(await sessions(connection)) == 5

        await wait_for(every_session_is_there, 10)
        go.set()
        await all_ended(connection)
        assert len(await sessions(connection)) == 5


async def test_one_session_listens_for_as_long_as_the_worker_lives(
    connection: Connection, database: str
) -> None:
    registry = Registry()

    @registry.job("quick")
    async def quick() -> None: ...

    async def listening() -> list[int]:
        rows = await sessions(connection)
        return [row["pid"] for row in rows if "LISTEN" in row["query"]]

    async with embedded(database, registry) as worker:
        await wait_for(listening)
        (pid,) = await listening()
        for _ in range(30):
            await ended(connection, await insert(connection, "quick"))
            rows = {row["pid"]: row for row in await sessions(connection)}
            # Never in a transaction, or the notification queue could not be emptied.
            assert rows[pid]["state"] == "idle"
        assert gauge(worker, "listener_up") == 1


async def test_a_listener_that_is_ended_comes_back_and_looks_at_the_queue(
    connection: Connection, database: str, admin_url: str, connect: Connect
) -> None:
    registry = Registry()

    @registry.job("quick")
    async def quick() -> None: ...

    admin = await connect(admin_url)
    async with embedded(database, registry):
        await ended(connection, await insert(connection, "quick"))
        (pid,) = [
            row["pid"] for row in await sessions(connection) if "LISTEN" in row["query"]
        ]
        # Inserted when nobody listens: in one transaction with the end of the session.
        job_id = await admin.fetchval(
            "with ended as (select pg_terminate_backend($1))"
            " insert into pgwake.jobs (kind) select 'quick' from ended returning id",
            pid,
        )
        await ended(connection, job_id)


async def test_a_refusal_of_new_sessions_is_waited_out(
    connection: Connection, database: str, admin_url: str, connect: Connect
) -> None:
    name = database.rpartition("/")[2]
    registry = Registry()

    @registry.job("quick", max_attempts=1)
    async def quick() -> None:
        await asyncio.sleep(0.3)

    admin = await connect(admin_url)
    job_id = await insert(connection, "quick")
    async with embedded(database, registry):
        await wait_for(lambda: _is_running(connection, job_id))
        await admin.execute(f"alter database {name} connection limit 0")
        await terminate_all(admin)
        await asyncio.sleep(1)  # the handler ends in the meantime
        await admin.execute(f"alter database {name} connection limit -1")
        row = await ended(connection, job_id)

    assert (row["status"], row["errors"]) == ("completed", None)


async def test_a_password_that_is_changed_for_a_while_changes_no_outcome(
    own_server: EmbeddedServer, own_database: str
) -> None:
    registry = Registry()
    go = asyncio.Event()

    @registry.job("wait", max_attempts=1)
    async def wait() -> str:
        await go.wait()
        return "done"

    admin = await asyncpg.connect(
        database_url(own_server, "pgwake_own", role="postgres")
    )
    try:
        job_id = await admin.fetchval(
            "insert into pgwake.jobs (kind) values ('wait') returning id"
        )
        async with embedded(own_database, registry) as worker:
            await wait_for(lambda: _is_running(admin, job_id))
            await admin.execute("alter role pgwake_owner password 'another'")
            await terminate_all(admin)
            go.set()
            await wait_for(lambda: asyncio.sleep(0, gauge(worker, "slots_busy") == 0))
            await asyncio.sleep(1)  # for it to try in vain
            await admin.execute("alter role pgwake_owner password 'owner'")
            row = await ended(admin, job_id)
    finally:
        await admin.close()

    assert (row["status"], row["errors"]) == ("completed", None)


async def _is_running(connection: Connection, job_id: int) -> bool:
    return bool((await job(connection, job_id))["status"] == "running")


DATABASE_ERRORS = [
    asyncpg.SerializationError("of the handler's"),
    asyncpg.DeadlockDetectedError("of the handler's"),
    asyncpg.ConnectionDoesNotExistError("of the handler's"),
    asyncpg.AdminShutdownError("of the handler's"),
    asyncpg.InterfaceError("of the handler's"),
    ConnectionResetError("of the handler's"),
    TimeoutError("of the handler's"),
]


@pytest.mark.parametrize("error", DATABASE_ERRORS, ids=lambda e: type(e).__name__)
async def test_a_database_error_of_the_handlers_is_an_attempt_like_any_other(
    connection: Connection, database: str, error: Exception
) -> None:
    registry = Registry()
    starts = 0

    @registry.job("fail", max_attempts=3)
    async def fail() -> None:
        nonlocal starts
        starts += 1
        raise error

    await set_queue(connection, backoff_base=timedelta(milliseconds=1))
    job_id = await insert(connection, "fail")
    async with embedded(database, registry):
        row = await ended(connection, job_id)

    assert (row["status"], row["attempt"], starts) == ("failed", 3, 3)
    assert reasons(row) == ["failed"] * 3
    # Even where the base is next to nothing, there is a pause between attempts.
    moments = [error["at"] for error in row["errors"]]
    assert len(set(moments)) == 3

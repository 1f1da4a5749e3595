"""The sessions of a worker: few, never more, and they come back."""

import asyncio
import gc
from contextlib import suppress
from pathlib import Path

import asyncpg
import pytest

from pgwake.database.connection import connect as connect_session
from pgwake.database.connection import describe
from pgwake.database.embedded import EmbeddedServer
from support import Connect, Connection, database_url, wait_for
from support.sql.helpers import insert
from support.worker.helpers import (
    all_ended,
    asleep,
    embedded,
    ended,
    in_status,
    session_on_duty,
    sessions,
)
from support.worker.metrics import gauge
from support.worker.processes import StartProcess
from support.worker.registries import quick, waiting


async def terminate_all(admin: Connection) -> int:
    """End every session of the workers; how many there were."""
    count: int = await admin.fetchval(
        "select count(pg_terminate_backend(pid)) from pg_stat_activity"
        " where application_name like 'pgwake:%' and datname = current_database()"
    )
    return count


async def test_keys_in_a_home_that_can_not_be_read_are_passed_by(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/" + "x" * 300)  # root may read any that can be named
    for mode in ("prefer", "allow"):
        session = await connect_session(f"{database}?sslmode={mode}", "test", 10)
        assert await session.fetchval("select 1") == 1
        await session.close()


async def test_a_connect_that_is_cancelled_leaves_nothing_to_be_logged(
    database: str,
) -> None:
    told: list[object] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: told.append(context))
    for ticks in range(60):
        connecting = asyncio.ensure_future(connect_session(database, "test", 10))
        for _ in range(ticks):
            await asyncio.sleep(0)
        connecting.cancel()
        with suppress(asyncio.CancelledError):
            await (await connecting).close()
    await asyncio.sleep(0.1)  # a transport says a moment later that it is closed
    gc.collect()
    assert told == []


def threads_of(pid: int) -> int:
    """How many threads a process has."""
    return len(list(Path(f"/proc/{pid}/task").iterdir()))


async def test_sessions_do_not_grow_however_often_they_are_ended(
    connection: Connection,
    admin_url: str,
    connect: Connect,
    start_worker: StartProcess,
) -> None:
    worker = await start_worker()
    admin = await connect(admin_url)
    await ended(connection, await insert(connection, "noop"))
    threads = threads_of(worker.children[0])
    pauses = [0.0, 0.05, 0.1, 0.3, 0.02]
    for n in range(20):
        await terminate_all(admin)
        await asyncio.sleep(pauses[n % len(pauses)])
    name = await connection.fetchval("select current_database()")
    await admin.execute(f"alter database {name} connection limit 0")
    await terminate_all(admin)
    await asyncio.sleep(1)
    await admin.execute(f"alter database {name} connection limit -1")
    await ended(connection, await insert(connection, "noop"))

    async def as_documented() -> bool:
        found = [row["application_name"] for row in await sessions(connection)]
        children = [n for n in found if f":{worker.children[0]}:" in n]
        # claims, ends, upkeep, lifeline, listener; and one of the supervisor.
        return len(children) <= 5 and len(found) <= 6

    await wait_for(as_documented)
    assert len(worker.children) == 1
    assert threads_of(worker.children[0]) == threads


async def test_a_worker_has_five_sessions_however_many_slots_and_queues(
    connection: Connection, database: str
) -> None:
    registry, go = waiting()

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

        await wait_for(every_session_is_there)
        go.set()
        await all_ended(connection)
        assert len(await sessions(connection)) == 5


async def listener_pid(connection: Connection) -> int:
    row = await session_on_duty(connection)
    assert row is not None
    pid: int = row["pid"]
    return pid


async def test_one_session_listens_for_as_long_as_the_worker_lives(
    connection: Connection, database: str
) -> None:
    registry = quick()

    async with embedded(database, registry) as worker:
        await asleep(worker)
        pid = await listener_pid(connection)
        for _ in range(30):
            await ended(connection, await insert(connection, "quick"))
            rows = {row["pid"]: row for row in await sessions(connection)}
            # Never in a transaction, or the notification queue could not be emptied.
            assert rows[pid]["state"] in ("idle", "active")
        await asleep(worker)  # so many so fast, and it had not slept
        assert await listener_pid(connection) == pid
        assert gauge(worker, "listener_up") == 1


async def test_a_listener_that_is_ended_comes_back_and_looks_at_the_queue(
    connection: Connection, database: str, admin_url: str, connect: Connect
) -> None:
    registry = quick()

    admin = await connect(admin_url)
    async with embedded(database, registry) as worker:
        await asleep(worker)
        pid = await listener_pid(connection)
        # Inserted when nobody listens: in one transaction with the end of the session.
        job_id = await admin.fetchval(
            "with ended as (select pg_terminate_backend($1))"
            " insert into pgwake.jobs (kind) select 'quick' from ended returning id",
            pid,
        )
        await ended(connection, job_id)


@pytest.mark.parametrize(
    ("refuse", "admit"),
    [
        ("database {} connection limit 0", "database {} connection limit -1"),
        ("role pgwake_owner password 'other'", "role pgwake_owner password 'owner'"),
    ],
    ids=["no room", "another password"],
)
async def test_a_refusal_of_new_sessions_is_waited_out(
    spare_server: EmbeddedServer, spare_database: str, refuse: str, admit: str
) -> None:
    registry, go = waiting(max_attempts=1)
    name = Path(spare_database).name
    admin = await asyncpg.connect(database_url(spare_server, name, role="postgres"))
    try:
        job_id = await insert(admin, "wait")
        async with embedded(spare_database, registry) as worker:
            await in_status(admin, job_id, "running")
            await admin.execute("alter " + refuse.format(name))
            await terminate_all(admin)
            go.set()
            await wait_for(lambda: gauge(worker, "slots_busy") == 0)
            await asyncio.sleep(1)  # for it to try in vain
            await admin.execute("alter " + admit.format(name))
            row = await ended(admin, job_id)
    finally:
        await admin.close()

    assert (row["status"], row["errors"]) == ("completed", None)


def test_what_asyncpg_says_of_an_ended_session_is_said_in_plain_words() -> None:
    text = "cannot switch to state 15; another operation (2) is in progress"

    said = describe(asyncpg.InternalClientError(text))

    assert said == f"InternalClientError: the session has ended ({text})"

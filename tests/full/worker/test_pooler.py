"""Workers behind a real PgBouncer."""

import os
import signal
from collections.abc import Iterator, MutableMapping, Sequence
from datetime import timedelta
from typing import Any, TypeAlias

import pytest
from structlog.testing import capture_logs

from pgwake import Job, Queue, Registry
from pgwake.database.connection import connect as connect_worker
from pgwake.database.connection import is_pooled
from pgwake.database.install import install
from support import Connect, Connection, wait_for
from support.sql.helpers import call, insert
from support.worker.api import serving
from support.worker.helpers import all_ended, embedded, ended
from support.worker.metrics import gauge, wakeups
from support.worker.pgbouncer import pgbouncer
from support.worker.processes import Diary, Pgwake, StartProcess
from support.worker.registries import quick

Line: TypeAlias = MutableMapping[str, Any]

POLL_SECONDS = 0.5
# Paid, and all that were not made by the schedule.
DONE = """
select count(*) filter (where kind = 'pay'),
  count(*) filter (where kind <> 'pay' and created_at is not null)
from pgwake.jobs_finished
where metadata is null or not metadata ? 'schedule'
"""
TWO_THOUSAND = """
insert into pgwake.jobs (kind) select 'quick' from generate_series(1, 2000)
"""


@pytest.fixture
def session_pooler(database: str) -> Iterator[str]:
    """The URL of the test's database through a pooler that lends sessions."""
    with pgbouncer(database, "session") as url:
        yield url


async def is_clean(connection: Connection) -> bool:
    """Whether every job was completed at its first attempt."""
    return not await connection.fetchval(
        "select exists (select from pgwake.jobs"
        " where status <> 'completed' or attempt <> 1 or errors is not null)"
    )


async def test_a_direct_listener_wakes_a_worker_behind_a_transaction_pooler(
    connection: Connection, database: str, transaction_pooler: str
) -> None:
    async with embedded(transaction_pooler, quick(), listen_url=database) as worker:
        await wait_for(lambda: gauge(worker, "notify_lock_held"))
        for _ in range(20):
            await ended(connection, await insert(connection, "quick"))
        await connection.execute(TWO_THOUSAND)
        await all_ended(connection)
        assert wakeups(worker, cause="poll") == 0
        assert wakeups(worker, cause="notify") > 0

    assert await is_clean(connection)


async def test_behind_a_transaction_pooler_alone_the_poll_finds_the_jobs(
    connection: Connection, transaction_pooler: str
) -> None:
    with capture_logs() as lines:
        async with embedded(
            transaction_pooler, quick(), poll_interval=POLL_SECONDS
        ) as worker:
            await wait_for(lambda: told(lines))
            for _ in range(3):
                await ended(connection, await insert(connection, "quick"))
            await connection.execute(TWO_THOUSAND)
            await all_ended(connection)
            assert gauge(worker, "listener_up") == 0
            assert wakeups(worker, cause="poll") > 0
            assert wakeups(worker, cause="notify") == 0

    (line,) = told(lines)
    assert "PGWAKE_LISTEN_URL" in line["remedy"]
    assert [x for x in lines if x["log_level"] in ("warning", "error")] == [line]
    assert await is_clean(connection)


def told(lines: Sequence[Line]) -> list[Line]:
    """The log lines that say that listening is impossible."""
    return [line for line in lines if line["event"] == "listening is impossible"]


async def test_a_session_pooler_is_as_good_as_none(
    connection: Connection, session_pooler: str
) -> None:
    with capture_logs() as lines:
        async with embedded(session_pooler, quick()) as worker:
            await wait_for(lambda: gauge(worker, "notify_lock_held"))
            for _ in range(20):
                await ended(connection, await insert(connection, "quick"))
            assert gauge(worker, "listener_up") == 1
            assert wakeups(worker, cause="poll") == 0

    assert [x for x in lines if x["log_level"] in ("warning", "error")] == []
    assert await is_clean(connection)


async def test_nothing_is_left_in_the_sessions_that_a_pooler_lends_to_others(
    connection: Connection, connect: Connect, transaction_pooler: str
) -> None:
    other = await connect(transaction_pooler, statement_cache_size=0)
    settings = "select array_agg(setting) from pg_settings where name ~ '_timeout$'"
    before = await other.fetchval(settings)
    with capture_logs() as lines:
        async with embedded(
            transaction_pooler, quick(), poll_interval=POLL_SECONDS
        ) as worker:
            await wait_for(lambda: told(lines))
            await connection.execute(TWO_THOUSAND)
            await all_ended(connection)
            assert gauge(worker, "listener_up") == 0
    # All that the pooler has, at once: each transaction holds one.
    others = [await connect(transaction_pooler, statement_cache_size=0) for _ in "123"]
    for session in others:
        await session.execute("begin")
    for session in others:
        assert await session.fetchval(settings) == before
        assert (
            await session.fetchval("select count(*) from pg_prepared_statements") == 0
        )
        assert (
            await session.fetchval(
                "select count(*) from pg_listening_channels() as c(name)"
            )
            == 0
        )
    locks = (
        "select count(*) from pg_locks where locktype = 'advisory' and database ="
        " (select oid from pg_database where datname = current_database())"
    )
    assert await connection.fetchval(locks) == 0


async def test_a_dead_process_is_replaced_at_once_behind_a_transaction_pooler(
    connection: Connection,
    database: str,
    transaction_pooler: str,
    start_worker: StartProcess,
    diary: Diary,
) -> None:
    worker = await start_worker(database_url=transaction_pooler, listen_url=database)
    job_id = await insert(connection, "nap", payload={"seconds": 3})
    (entry,) = await diary.has(event="start")
    os.kill(entry["pid"], signal.SIGKILL)
    await worker.logged("jobs given back", jobs=1, within=10)
    await worker.logged("process started", count=2, within=10)
    row = await ended(connection, job_id)

    assert (row["status"], row["crash_count"]) == ("completed", 1)


async def test_a_connection_is_told_from_a_poolers(
    database: str, transaction_pooler: str, session_pooler: str
) -> None:
    found = []
    for url in (database, transaction_pooler, session_pooler):
        connection = await connect_worker(url, "pgwake:test", 5)
        found.append(is_pooled(connection))
        connection.terminate()

    assert found == [False, True, True]


async def test_a_handlers_transaction_works_through_a_transaction_pooler(
    connection: Connection, transaction_pooler: str
) -> None:
    await connection.execute("create table paid (job bigint)")
    registry = Registry()

    @registry.job("pay")
    async def pay(job: Job) -> None:
        async with job.transaction() as transaction:
            await transaction.execute("insert into paid values ($1)", job.id)
            job.report_progress("paid")

    ids = [await insert(connection, "pay") for _ in range(30)]
    async with embedded(transaction_pooler, registry, poll_interval=POLL_SECONDS):
        rows = [await ended(connection, job_id) for job_id in ids]
    assert [(row["status"], row["progress"]) for row in rows] == [
        ("completed", "paid")
    ] * 30
    assert await is_clean(connection)
    paid = await connection.fetch("select job from paid order by 1")
    assert [row[0] for row in paid] == ids


async def test_two_sessions_of_the_server_are_enough_for_everything(
    connection: Connection, connect: Connect, database: str, pgwake: Pgwake
) -> None:
    await connection.execute("create table paid (job bigint)")
    await call(connection, "schedule", name="s", kind="quick", every=timedelta(0, 1))
    registry = quick()

    @registry.job("pay")
    async def pay(job: Job) -> None:
        await task.enqueue()
        async with job.transaction() as transaction:
            await transaction.execute("insert into paid values ($1)", job.id)

    @registry.job("task")
    async def task() -> None: ...

    with pgbouncer(database, "transaction", size=2, auth="scram-sha-256") as url:
        through = await connect(url, statement_cache_size=0)
        await install(url)
        done = await pgwake("enqueue", "quick", PGWAKE_DATABASE_URL=url)
        assert done.code == 0, done.errors
        settings = {"listen_url": database, "queues": "default:20"}
        with capture_logs() as lines:
            async with serving(url, registry, **settings) as api, Queue(url) as queue:
                await connection.execute(
                    "insert into pgwake.jobs (kind)"
                    " select 'pay' from generate_series(1, 100)"
                )
                for _ in range(10):
                    await queue.enqueue("quick")
                    body = {"kind": "quick"}
                    pushed = await api.post("/queues/default/push", json=body)
                    assert pushed.status_code == 201
                    answer = await api.get("/api/queue/stats")
                    assert answer.status_code == 200

                async def all_are_done() -> bool:
                    return tuple(*await connection.fetch(DONE)) == (100, 121)

                await wait_for(all_are_done)
        assert [x for x in lines if x["log_level"] in ("warning", "error")] == []
        assert not await connection.fetchval(
            "select exists (select from pgwake.jobs where attempt > 1)"
        )
        prepared = "select count(*) from pg_prepared_statements"
        assert await through.fetchval(prepared) == 0

"""Idle workers are woken, with an hour between their polls."""

from collections.abc import Awaitable, Callable

import pytest

from support import Connect, Connection
from support.sql.helpers import call, insert
from support.worker.helpers import all_ended, asleep, embedded, ended, quick, wakeups
from support.worker.processes import Diary, StartProcess


async def plain_insert(connection: Connection) -> None:
    await connection.execute("insert into pgwake.jobs (kind) values ('quick')")


async def multi_row_insert(connection: Connection) -> None:
    await connection.execute(
        "insert into pgwake.jobs (kind) values ('quick'), ('quick'), ('quick')"
    )


async def insert_from_select(connection: Connection) -> None:
    await connection.execute(
        "insert into pgwake.jobs (kind) select 'quick' from generate_series(1, 5)"
    )


async def insert_on_conflict_do_nothing(connection: Connection) -> None:
    await connection.execute(
        "insert into pgwake.jobs (kind, unique_key) values ('quick', 'k')"
        " on conflict do nothing"
    )


async def copy(connection: Connection) -> None:
    await connection.copy_records_to_table(
        "jobs", schema_name="pgwake", columns=["kind"], records=[("quick",)] * 5
    )


async def enqueue(connection: Connection) -> None:
    await call(connection, "enqueue", kind="quick")


async def prepared_insert(connection: Connection) -> None:
    statement = await connection.prepare("insert into pgwake.jobs (kind) values ($1)")
    await statement.executemany([("quick",), ("quick",)])


async def insert_in_a_transaction(connection: Connection) -> None:
    async with connection.transaction():
        await plain_insert(connection)
        async with connection.transaction():  # a savepoint
            await plain_insert(connection)


WAYS = [
    plain_insert,
    multi_row_insert,
    insert_from_select,
    insert_on_conflict_do_nothing,
    copy,
    enqueue,
    prepared_insert,
    insert_in_a_transaction,
]


@pytest.mark.parametrize("way", WAYS)
async def test_an_idle_worker_is_woken_by(
    connection: Connection, database: str, way: Callable[[Connection], Awaitable[None]]
) -> None:
    async with embedded(database, quick()) as worker:
        await asleep(worker)
        await way(connection)
        await all_ended(connection, within=10)
        assert wakeups(worker, cause="notify") >= 1
        assert wakeups(worker, cause="poll") == 0


NAMES = [
    "MyQueue",
    "my-queue",
    "my queue",
    " led by a blank",
    'quote"inside',
    "it's",
    "semicolon;drop",
    "x'; drop table canary; --",
    "\N{PILE OF POO}",
    "schema.with.dots",
    "1leading",
    "with:colon",
    "percent%s {0} $1 \\",
    "tab\tnew\nline\x1b[31m",
    "\N{RIGHT-TO-LEFT OVERRIDE}left",
    "e\N{COMBINING ACUTE ACCENT}",
    "x" * 128,
    "\N{LATIN SMALL LETTER E WITH ACUTE}" * 64,
]


@pytest.mark.parametrize("name", NAMES)
async def test_a_queue_of_any_name_wakes_its_worker_and_no_other(
    connection: Connection, database: str, name: str
) -> None:
    near = {name.upper(), name.lower(), name.strip(), f"{name[:60]}x"} - {name}
    async with (
        embedded(database, quick(), queues=(f"{name}:3",)) as worker,
        embedded(database, quick(), queues=tuple(near)) as other,
    ):
        await asleep(worker, name)
        for queue in near:
            await asleep(other, queue)
        before = wakeups(other)
        job_id = await insert(connection, "quick", queue=name)
        row = await ended(connection, job_id, within=10)
        assert row["claimed_by"] == worker.name
        assert wakeups(other) == before


async def test_a_thousand_jobs_in_one_transaction_are_drained(
    connection: Connection, start_worker: StartProcess, diary: Diary
) -> None:
    await start_worker("--queue", "default:2", processes=4)
    async with connection.transaction():
        for _ in range(1000):
            await insert(connection, "note")
    await all_ended(connection)

    # One notification, and still all of them have had their part.
    assert len(diary.entries(event="start")) == 1000


async def test_slow_jobs_in_one_transaction_reach_every_process(
    connection: Connection, start_worker: StartProcess, diary: Diary
) -> None:
    await start_worker("--queue", "default:2", processes=3)
    await connection.execute(
        "insert into pgwake.jobs (kind, payload)"
        " select 'nap', '{\"seconds\": 2}' from generate_series(1, 6)"
    )
    entries = await diary.has(6, event="start", within=10)

    pids = [entry["pid"] for entry in entries]
    assert sorted(pids.count(pid) for pid in set(pids)) == [2, 2, 2]


async def test_jobs_that_arrive_unannounced_run_within_the_poll(
    connection: Connection, database: str, admin_url: str, connect: Connect
) -> None:
    admin = await connect(admin_url)
    await admin.execute("set session_replication_role = replica")
    async with embedded(database, quick(), poll_interval=0.5) as worker:
        await asleep(worker)
        await admin.execute(
            "insert into pgwake.jobs (kind) select 'quick' from generate_series(1, 5)"
        )
        await all_ended(connection, within=10)
        assert wakeups(worker, cause="poll") >= 1


async def test_a_producer_that_silences_its_notifications_is_found_by_the_poll(
    connection: Connection, database: str
) -> None:
    await connection.execute("set pgwake.notify = off")
    async with embedded(database, quick(), poll_interval=0.5) as worker:
        await asleep(worker)
        await insert(connection, "quick")
        await all_ended(connection, within=10)
        assert wakeups(worker, cause="poll") >= 1

"""Idle workers are woken, with an hour between their polls."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta

import pytest

from pgwake import Registry, Worker
from sql.helpers import call, insert, job, set_queue
from support import Connect, Connection, wait_for
from worker.helpers import (
    Diary,
    Samples,
    StartProcess,
    all_ended,
    embedded,
    ended,
    in_status,
)


def quick(queue: str = "default") -> Registry:
    registry = Registry()

    @registry.job("quick", queue=queue)
    async def quick() -> None: ...

    return registry


def wakeups(worker: Worker, **labels: str) -> float:
    return Samples(worker.metrics.render()).total("pgwake_wakeups", **labels)


async def asleep(worker: Worker, queue: str = "default") -> None:
    """Wait until a worker has looked at its queue for the last time, and sleeps.

    It looks when it has started, and again when its listener is up.
    """

    async def has_looked() -> bool:
        return wakeups(worker, queue=queue) >= 1

    await wait_for(has_looked)


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
        assert wakeups(worker, cause="notify") >= 2
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


async def test_a_delayed_job_starts_by_a_timer(
    connection: Connection, database: str
) -> None:
    async with embedded(database, quick()) as worker:
        await asleep(worker)
        run_at: datetime = await connection.fetchval("select now() + interval '1 s'")
        job_id = await insert(connection, "quick", run_at=run_at)
        row = await ended(connection, job_id, within=10)
        assert wakeups(worker, cause="timer") >= 1

    assert timedelta(0) <= row["started_at"] - run_at < timedelta(seconds=2)


async def test_a_job_that_is_due_sooner_moves_the_timer(
    connection: Connection, database: str
) -> None:
    async with embedded(database, quick()) as worker:
        await asleep(worker)
        at = "select now() + $1::interval"
        far = await connection.fetchval(at, timedelta(hours=1))
        near = await connection.fetchval(at, timedelta(seconds=1))
        later = await insert(connection, "quick", run_at=far)
        sooner = await insert(connection, "quick", run_at=near)
        await ended(connection, sooner, within=10)

    assert (await job(connection, later))["status"] == "pending"


async def test_a_job_far_in_the_future_of_any_year_is_no_obstacle(
    connection: Connection, database: str
) -> None:
    for run_at in ("12000-01-01", "294276-12-31"):
        await connection.execute(
            f"insert into pgwake.jobs (kind, run_at) values ('quick', '{run_at} UTC')"
        )
    async with embedded(database, quick()) as worker:
        await asleep(worker)
        row = await ended(connection, await insert(connection, "quick"), within=10)

    assert row["status"] == "completed"


async def test_a_job_due_since_before_any_calendar_runs(
    connection: Connection, database: str
) -> None:
    await connection.execute(
        "insert into pgwake.jobs (kind, run_at) values ('quick', '4713-01-01 BC')"
    )
    async with embedded(database, quick()):
        row = await ended(connection, await insert(connection, "quick"), within=10)
        await all_ended(connection, within=10)

    assert row["status"] == "completed"


@pytest.mark.parametrize("created_at", ["infinity", "-infinity", "4713-01-01 BC"])
async def test_a_job_created_at_no_time_takes_no_worker_down(
    connection: Connection, database: str, created_at: str
) -> None:
    await connection.execute(
        f"insert into pgwake.jobs (kind, created_at) values ('quick', '{created_at}')"
    )
    # One that was claimed together with it comes back when that lease has run out.
    ids = [await insert(connection, "quick") for _ in range(2)]
    async with embedded(database, quick(), poll_interval=0.2, lease=1):
        rows = [await ended(connection, job_id, within=15) for job_id in ids]

    assert [row["status"] for row in rows] == ["completed"] * 2


async def test_a_retry_starts_by_a_timer(connection: Connection, database: str) -> None:
    registry = Registry()
    attempts = 0

    @registry.job("twice")
    async def twice() -> None:
        nonlocal attempts
        attempts += 1
        if attempts == 1:
            raise ValueError

    await set_queue(connection, backoff_base=timedelta(milliseconds=500))
    async with embedded(database, registry) as worker:
        await asleep(worker)
        row = await ended(connection, await insert(connection, "twice"), within=10)
        assert wakeups(worker, cause="poll") == 0

    assert (row["status"], row["attempt"]) == ("completed", 2)


async def test_a_paused_queue_waits_until_it_is_resumed(
    connection: Connection, database: str
) -> None:
    async with embedded(database, quick()) as worker:
        await asleep(worker)
        await connection.execute(
            "insert into pgwake.queues (name, paused_until)"
            " values ('default', 'infinity')"
        )
        job_id = await insert(connection, "quick")
        looks = wakeups(worker)

        async def has_looked_in_vain() -> bool:
            return wakeups(worker) > looks

        await connection.execute("select pgwake.ring('default')")
        await wait_for(has_looked_in_vain)
        assert (await job(connection, job_id))["status"] == "pending"
        await connection.execute("update pgwake.queues set paused_until = null")
        await ended(connection, job_id, within=10)


async def test_a_pause_with_an_end_ends_by_a_timer(
    connection: Connection, database: str
) -> None:
    until: datetime = await connection.fetchval("select now() + interval '1 second'")
    await set_queue(connection, paused_until=until)
    job_id = await insert(connection, "quick")
    async with embedded(database, quick()):
        row = await ended(connection, job_id, within=10)

    assert row["started_at"] >= until


async def test_a_retried_dead_letter_wakes_its_worker(
    connection: Connection, database: str
) -> None:
    registry = Registry()
    attempts = 0

    @registry.job("twice", max_attempts=1)
    async def twice() -> None:
        nonlocal attempts
        attempts += 1
        if attempts == 1:
            raise ValueError

    async with embedded(database, registry):
        job_id = await insert(connection, "twice")
        assert (await ended(connection, job_id))["status"] == "failed"
        await call(connection, "retry_job", job_id=job_id)
        await in_status(connection, job_id, "completed", within=10)


async def test_jobs_are_claimed_by_priority_then_due_time_then_id(
    connection: Connection, database: str
) -> None:
    registry = Registry()
    order: list[int] = []

    @registry.job("note")
    async def note(number: int) -> None:
        order.append(number)

    await connection.execute(
        "insert into pgwake.jobs (kind, priority, run_at, payload) values"
        " ('note', 0, now(), '{\"number\": 4}'),"
        " ('note', 0, now() - interval '1 minute', '{\"number\": 3}'),"
        " ('note', 5, now(), '{\"number\": 1}'),"
        " ('note', 5, now(), '{\"number\": 2}'),"
        " ('note', -5, now() - interval '1 hour', '{\"number\": 5}')"
    )
    async with embedded(database, registry, queues="default:1"):
        await all_ended(connection)

    assert order == [1, 2, 3, 4, 5]


async def test_a_burst_on_top_of_running_jobs_fills_the_free_slots(
    connection: Connection, database: str
) -> None:
    registry = Registry()
    go = asyncio.Event()

    @registry.job("wait")
    async def wait() -> None:
        await go.wait()

    async with embedded(database, registry, queues="default:4"):
        first = await insert(connection, "wait")
        await in_status(connection, first, "running")
        ids = [await insert(connection, "wait") for _ in range(3)]
        for job_id in ids:
            await in_status(connection, job_id, "running", within=10)
        go.set()
        await all_ended(connection)

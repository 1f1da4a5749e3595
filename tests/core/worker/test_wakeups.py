"""Idle workers are woken, with an hour between their polls."""

from collections.abc import Awaitable, Callable

from pgwake import Registry
from support import Connect, Connection
from support.sql.helpers import insert
from support.worker.helpers import all_ended, asleep, embedded, ended, insert_some
from support.worker.metrics import wakeups
from support.worker.processes import Diary, StartProcess
from support.worker.registries import quick


async def copy(connection: Connection) -> None:
    await connection.copy_records_to_table(
        "jobs", schema_name="pgwake", columns=["kind"], records=[("quick",)] * 5
    )


async def prepared_insert(connection: Connection) -> None:
    statement = await connection.prepare("insert into pgwake.jobs (kind) values ($1)")
    await statement.executemany([("quick",), ("quick",)])


async def insert_in_a_transaction(connection: Connection) -> None:
    async with connection.transaction():
        await insert(connection, "quick")
        async with connection.transaction():  # a savepoint
            await insert(connection, "quick")


WAYS: dict[str, str | Callable[[Connection], Awaitable[None]]] = {
    "a plain insert": "insert into pgwake.jobs (kind) values ('quick')",
    "an insert of rows": "insert into pgwake.jobs (kind) values ('quick'), ('quick')",
    "an insert of a query": "insert into pgwake.jobs (kind)"
    " select 'quick' from generate_series(1, 5)",
    "on conflict": "insert into pgwake.jobs (kind, unique_key) values ('quick', 'k')"
    " on conflict do nothing",
    "enqueue": "select pgwake.enqueue('quick')",
    "copy": copy,
    "a prepared insert": prepared_insert,
    "a transaction": insert_in_a_transaction,
}


async def test_an_idle_worker_is_woken_however_jobs_come(
    connection: Connection, database: str
) -> None:
    async with embedded(database, quick()) as worker:
        for name, way in WAYS.items():
            await asleep(worker)
            before = wakeups(worker, cause="notify")
            if isinstance(way, str):
                await connection.execute(way)
            else:
                await way(connection)
            await all_ended(connection)
            assert wakeups(worker, cause="notify") > before, name
        assert wakeups(worker, cause="poll") == 0


async def test_two_services_on_one_queue_keep_each_other_s_jobs_waiting_once(
    connection: Connection, database: str
) -> None:
    others = Registry()

    @others.job("other")
    async def other() -> None: ...

    bounces = "select coalesce(sum(bounce_count), 0) from pgwake.list_kinds()"
    async with embedded(database, quick()), embedded(database, others):
        for _ in range(5):
            for kind in ("quick", "other"):
                await insert(connection, kind)
                await all_ended(connection)
        assert await connection.fetchval(bounces) <= 2


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


async def test_a_queue_of_any_name_wakes_its_worker_and_no_other(
    connection: Connection, database: str
) -> None:
    near = {
        other
        for name in NAMES
        for other in (name.upper(), name.lower(), name.strip(), f"{name[:60]}x")
    } - set(NAMES)
    async with (
        embedded(database, quick(), queues=tuple(f"{n}:1" for n in NAMES)) as worker,
        embedded(database, quick(), queues=tuple(f"{n}:1" for n in near)) as other,
    ):
        await asleep(worker, *NAMES)
        await asleep(other, *near)
        before = wakeups(other)
        for name in NAMES:
            job_id = await insert(connection, "quick", queue=name)
            row = await ended(connection, job_id)
            assert row["claimed_by"] == worker.name, name
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
        " select 'nap', '{\"seconds\": 30}' from generate_series(1, 6)"
    )
    entries = await diary.has(6, event="start")

    pids = [entry["pid"] for entry in entries]
    assert sorted(pids.count(pid) for pid in set(pids)) == [2, 2, 2]


async def test_jobs_that_arrive_unannounced_run_within_the_poll(
    connection: Connection, database: str, admin_url: str, connect: Connect
) -> None:
    admin = await connect(admin_url)
    await admin.execute("set session_replication_role = replica")
    async with embedded(database, quick(), poll_interval=0.5) as worker:
        await asleep(worker)
        await insert_some(admin, "quick", 5)
        await all_ended(connection, within=10)
        assert wakeups(worker, cause="poll") >= 1

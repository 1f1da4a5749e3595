"""What handlers report of how far they are: written soon, together, and kept."""

import asyncio
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Any

import pytest
from structlog.testing import capture_logs

from pgwake import ConfigurationError, Job, Registry
from pgwake.database.statements.claim import claim_rows
from pgwake.errors import InvalidValueError
from pgwake.jobs.attempt import Attempt
from support import Connect, Connection, wait_for
from support.sql.helpers import Listener, insert, job, set_queue
from support.worker.helpers import embedded, ended, insert_some, run


async def shows(connection: Connection, job_id: int, progress: Any) -> None:
    """Wait until a job's row has this progress."""

    async def is_there() -> bool:
        return bool((await job(connection, job_id))["progress"] == progress)

    await wait_for(is_there)


@pytest.mark.parametrize("how", ["async", "thread"])
async def test_what_a_handler_reports_is_soon_in_the_row_and_stays_after_the_end(
    connection: Connection, database: str, how: str
) -> None:
    registry = Registry()
    go = asyncio.Event()
    here = asyncio.get_running_loop()

    if how == "async":

        @registry.job("import")
        async def import_it(job: Job) -> None:
            job.report_progress({"share": 0.4, "step": "é"})
            await go.wait()
            job.report_progress(0.9)
            job.report_progress("done")
    else:

        @registry.job("import")
        def import_in_thread(job: Job) -> None:
            job.report_progress({"share": 0.4, "step": "é"})
            asyncio.run_coroutine_threadsafe(go.wait(), here).result(10)
            job.report_progress("done")

    job_id = await insert(connection, "import")
    async with embedded(database, registry):
        await shows(connection, job_id, {"share": 0.4, "step": "é"})
        assert (await job(connection, job_id))["status"] == "running"
        go.set()
        row = await ended(connection, job_id)
    assert (row["status"], row["progress"]) == ("completed", "done")


async def fail(job: Job) -> None:
    job.report_progress(0.5)
    raise ValueError("no")


async def end_in_a_transaction(job: Job) -> None:
    async with job.transaction():
        job.report_progress(0.5)
        job.report_progress("done")


async def be_refused_in_a_transaction(job: Job) -> None:
    async with job.transaction():
        job.report_progress([1] * 2000)  # ", " in the database


@pytest.mark.parametrize(
    ("handler", "status", "progress"),
    [
        (fail, "failed", 0.5),
        (end_in_a_transaction, "completed", "done"),
        (be_refused_in_a_transaction, "completed", None),
    ],
)
async def test_the_last_report_stays_with_a_job_however_it_ends(
    connection: Connection,
    database: str,
    handler: Callable[[Job], Awaitable[None]],
    status: str,
    progress: object,
) -> None:
    row = await run(connection, database, handler, max_attempts=1)
    assert (row["status"], row["progress"]) == (status, progress)


async def test_of_many_reports_few_are_written_and_the_newest_always(
    connection: Connection, connect: Connect, database: str
) -> None:
    await set_queue(connection, status_events="always")
    listener = await Listener.start(await connect(), "job_progress")
    registry = Registry()

    @registry.job("import")
    async def import_it(job: Job) -> None:
        for n in range(2000):
            job.report_progress(n)
            await asyncio.sleep(0.0005)

    job_id = await insert(connection, "import")
    begun = monotonic()
    async with embedded(database, registry):
        row = await ended(connection, job_id)
    seconds = monotonic() - begun
    events = await listener.events()
    heard = [event["progress"] for event in events]
    assert row["progress"] == heard[-1] == 1999
    assert heard == sorted(heard)
    assert len(heard) <= 2 * seconds + 2  # the first at once, the last with the end
    assert {event["id"] for event in events} == {job_id}


class Together:
    """A registry whose jobs wait for each other, then report and stay."""

    def __init__(self) -> None:
        self.registry, self.go, self.waiting = Registry(), asyncio.Event(), 0

        @self.registry.job("import")
        async def import_it(job: Job) -> None:
            self.waiting += 1
            await self.go.wait()
            job.report_progress(1)
            await asyncio.sleep(60)


async def test_reports_of_many_jobs_share_a_statement(
    connection: Connection, database: str
) -> None:
    jobs = Together()
    await insert_some(connection, "import", 20)
    look = "select count(progress), count(distinct xmin::text) from pgwake.jobs_live"
    async with embedded(database, jobs.registry, queues="default:20", grace=0):
        await wait_for(lambda: jobs.waiting == 20)
        jobs.go.set()

        async def all_are_there() -> bool:
            row = await connection.fetchrow(look)
            return row is not None and bool(row[0] == 20)

        await wait_for(all_are_there)
        row = await connection.fetchrow(look)
    assert row is not None
    assert row[1] == 1


async def test_a_report_may_be_taken_back(
    connection: Connection, database: str
) -> None:
    registry = Registry()
    go = asyncio.Event()

    @registry.job("import")
    async def import_it(job: Job) -> None:
        job.report_progress(1)
        await go.wait()
        job.report_progress(None)

    job_id = await insert(connection, "import")
    async with embedded(database, registry):
        await shows(connection, job_id, 1)
        go.set()
        row = await ended(connection, job_id)
    assert row["progress"] is None


async def test_what_can_not_be_stored_is_refused_where_it_is_reported(
    connection: Connection, database: str
) -> None:
    async def import_it(job: Job) -> None:
        job.report_progress("x" * 4094)
        for bad in (float("nan"), "\0", "\ud800", object(), "x" * 4095):
            with pytest.raises(InvalidValueError):
                job.report_progress(bad)

    row = await run(connection, database, import_it, max_attempts=1)
    assert (row["status"], row["progress"]) == ("completed", "x" * 4094)


async def test_one_that_only_the_database_finds_too_large_harms_no_other(
    connection: Connection, database: str
) -> None:
    registry = Registry()
    go = asyncio.Event()
    waiting = 0

    @registry.job("import")
    async def import_it(job: Job, much: bool) -> None:
        nonlocal waiting
        waiting += 1
        await go.wait()
        job.report_progress([1] * 2000 if much else "fine")  # ", " in the database

    ids = [
        await insert(connection, "import", payload={"much": n == 1}) for n in range(3)
    ]
    with capture_logs() as lines:
        async with embedded(database, registry):
            await wait_for(lambda: waiting == 3)
            go.set()
            rows = [await ended(connection, job_id) for job_id in ids]
    assert [row["status"] for row in rows] == ["completed"] * 3
    assert [row["progress"] for row in rows] == ["fine", None, "fine"]
    refused = [line for line in lines if line["event"] == "progress refused"]
    assert {line["job"] for line in refused} == {ids[1]}
    assert "6000 bytes" in refused[0]["error"]


async def test_a_report_that_meets_a_locked_row_is_written_later(
    connection: Connection, connect: Connect, database: str
) -> None:
    other, jobs = await connect(), Together()
    job_id = await insert(connection, "import")
    beside = await insert(connection, "import", queue="beside")
    async with embedded(database, jobs.registry, queues="default,beside", grace=0):
        await wait_for(lambda: jobs.waiting == 2)
        async with other.transaction():
            lock = "select from pgwake.jobs_live where id = $1 for update"
            await other.execute(lock, job_id)
            jobs.go.set()
            await shows(connection, beside, 1)
            assert (await job(connection, job_id))["progress"] is None
        await shows(connection, job_id, 1)


async def test_a_report_after_the_end_changes_nothing(
    connection: Connection, database: str
) -> None:
    registry = Registry()
    jobs: list[Job] = []
    go = asyncio.Event()

    @registry.job("import")
    async def import_it(job: Job, first: bool) -> None:
        if first:
            jobs.append(job)
            return
        await go.wait()
        job.report_progress("written")
        await asyncio.sleep(60)

    job_id = await insert(connection, "import", payload={"first": True})
    async with embedded(database, registry, grace=0):
        await ended(connection, job_id)
        beside = await insert(connection, "import", payload={"first": False})
        jobs[0].report_progress("too late")
        go.set()
        await shows(connection, beside, "written")
    assert (await job(connection, job_id))["progress"] is None


async def test_a_job_that_no_worker_runs_has_nobody_to_report_to(
    connection: Connection, connect: Connect
) -> None:
    await insert(connection, "import")
    plain = await connect()
    await plain.reset_type_codec("jsonb", schema="pg_catalog")
    claim = await claim_rows(plain, "default", 1, "w1", None)
    (held,) = Attempt.from_claim(claim, 0.0)

    with pytest.raises(ConfigurationError, match="set_progress"):
        held.report_progress(1)
    with pytest.raises(ConfigurationError, match="complete_job"):
        held.transaction()

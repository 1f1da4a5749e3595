"""What handlers report of how far they are: written soon, together, and kept."""

import asyncio
from time import monotonic
from typing import Any

import pytest
from structlog.testing import capture_logs

from pgwake import ConfigurationError, Job, Registry
from pgwake.database.statements.claim import claim_batch
from pgwake.errors import InvalidValueError
from support import Connect, Connection, wait_for
from support.sql.helpers import Listener, insert, job, set_queue
from support.worker.helpers import (
    embedded,
    ended,
    run,
)


async def shows(connection: Connection, job_id: int, progress: Any) -> None:
    """Wait until a job's row has this progress."""

    async def is_there() -> bool:
        return bool((await job(connection, job_id))["progress"] == progress)

    await wait_for(is_there, 10)


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


async def test_it_stays_with_a_job_that_has_failed(
    connection: Connection, database: str
) -> None:
    async def import_it(job: Job) -> None:
        job.report_progress(0.5)
        raise ValueError("no")

    row = await run(connection, database, import_it, max_attempts=1)
    assert (row["status"], row["progress"]) == ("failed", 0.5)


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


async def test_reports_of_many_jobs_share_a_statement(
    connection: Connection, database: str
) -> None:
    registry = Registry()
    go = asyncio.Event()
    waiting = 0

    @registry.job("import")
    async def import_it(job: Job) -> None:
        nonlocal waiting
        waiting += 1
        await go.wait()
        job.report_progress(1)
        await asyncio.sleep(60)

    for _ in range(20):
        await insert(connection, "import")
    look = "select count(progress), count(distinct xmin::text) from pgwake.jobs_live"
    async with embedded(database, registry, queues="default:20", grace=0):
        await wait_for(lambda: waiting == 20)
        go.set()

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


@pytest.mark.parametrize(
    "progress", [float("nan"), "\0", "\ud800", object(), "x" * 4095]
)
async def test_what_can_not_be_stored_is_refused_where_it_is_reported(
    connection: Connection, database: str, progress: object
) -> None:
    errors: list[str] = []

    async def import_it(job: Job) -> None:
        job.report_progress("x" * 4094)
        try:
            job.report_progress(progress)
        except InvalidValueError as error:
            errors.append(str(error))

    row = await run(connection, database, import_it)
    assert (row["status"], row["progress"]) == ("completed", "x" * 4094)
    assert len(errors) == 1


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
    other = await connect()
    registry = Registry()
    go = asyncio.Event()
    waiting = 0

    @registry.job("import")
    async def import_it(job: Job) -> None:
        nonlocal waiting
        waiting += 1
        await go.wait()
        job.report_progress(1)
        await asyncio.sleep(60)

    job_id = await insert(connection, "import")
    beside = await insert(connection, "import", queue="beside")
    async with embedded(database, registry, queues="default,beside", grace=0):
        await wait_for(lambda: waiting == 2)
        async with other.transaction():
            lock = "select from pgwake.jobs_live where id = $1 for update"
            await other.execute(lock, job_id)
            go.set()
            await shows(connection, beside, 1)
            assert (await job(connection, job_id))["progress"] is None
        await shows(connection, job_id, 1)


async def test_a_transaction_writes_the_last_report_with_the_completion(
    connection: Connection, database: str
) -> None:
    async def import_it(job: Job) -> None:
        async with job.transaction():
            job.report_progress(0.5)
            job.report_progress("done")

    row = await run(connection, database, import_it)
    assert (row["status"], row["progress"]) == ("completed", "done")


async def test_a_report_that_is_refused_does_not_harm_its_transaction(
    connection: Connection, database: str
) -> None:
    async def import_it(job: Job) -> None:
        async with job.transaction():
            job.report_progress([1] * 2000)  # ", " in the database

    row = await run(connection, database, import_it, max_attempts=1)
    assert (row["status"], row["progress"]) == ("completed", None)


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
    claim = await claim_batch(plain, "default", 1, "w1", None)
    (held,) = Job.from_claim(claim, 0.0)

    with pytest.raises(ConfigurationError, match="set_progress"):
        held.report_progress(1)
    with pytest.raises(ConfigurationError, match="complete_job"):
        held.transaction()

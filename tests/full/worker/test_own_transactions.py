"""Handlers that complete their jobs with other drivers, in their own transactions.

By SQL, and by job.complete().
"""

import asyncio
import inspect
import threading
from typing import Any

import psycopg
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session
from structlog.testing import capture_logs

from pgwake import Discard, Job, Registry, Snooze
from support import Connect, Connection, wait_for
from support.sql.helpers import call, insert, job
from support.worker.balance import create_account, total
from support.worker.helpers import Row, embedded, ended, reasons
from support.worker.metrics import Samples

PAY = "update account set balance = balance + 1"
TELL = "select pgwake.enqueue('tell')"
COMPLETE = "select pgwake.complete_job(%s, %s, %s)"


@pytest.fixture(autouse=True)
async def account(connection: Connection) -> None:
    """An account that handlers pay into."""
    await create_account(connection)


def pay_by_psycopg(url: str, job: Job) -> None:
    with psycopg.connect(url) as connection:
        connection.execute(PAY)
        connection.execute(TELL)
        connection.execute(COMPLETE, [job.id, job.lease_id, '{"paid": 1}'])


def pay_by_sqlalchemy(url: str, job: Job) -> None:
    url = url.replace("postgresql", "postgresql+psycopg")
    engine = sqlalchemy.create_engine(url, poolclass=sqlalchemy.NullPool)
    with Session(engine) as session, session.begin():
        session.execute(sqlalchemy.text(PAY))
        session.execute(sqlalchemy.text(TELL))
        job.complete(session, {"paid": 1})


async def pay_by_async_sqlalchemy(url: str, job: Job) -> None:
    url = url.replace("postgresql", "postgresql+asyncpg")
    engine = create_async_engine(url, poolclass=sqlalchemy.NullPool)
    async with AsyncSession(engine) as session, session.begin():
        await session.execute(sqlalchemy.text(PAY))
        await session.execute(sqlalchemy.text(TELL))
        await job.complete(session, {"paid": 1})


DRIVERS = [pay_by_psycopg, pay_by_sqlalchemy, pay_by_async_sqlalchemy]


def paying(url: str, driver: Any, before: Any = None) -> Registry:
    """A registry whose "pay" pays by a driver, and goes on for more than a lease."""
    registry = Registry()
    if inspect.iscoroutinefunction(driver):

        @registry.job("pay", max_attempts=1)
        async def pay_async(job: Job) -> str:
            if before is not None:
                await asyncio.to_thread(before, job)
            await driver(url, job)
            await asyncio.sleep(1.5)
            return "not the result"
    else:

        @registry.job("pay", max_attempts=1)
        def pay(job: Job) -> str:
            if before is not None:
                before(job)
            driver(url, job)
            threading.Event().wait(1.5)
            assert not job.should_stop
            return "not the result"

    return registry


async def paid(connection: Connection) -> tuple[int, int]:
    """The balance, and how many jobs were enqueued beside."""
    row = await connection.fetchrow(
        "select balance, (select count(*) from pgwake.jobs where kind = 'tell')"
        " from account"
    )
    assert row is not None
    return row[0], row[1]


@pytest.mark.parametrize("driver", DRIVERS)
async def test_the_workers_own_completion_finds_it_done_and_says_the_same(
    connection: Connection, database: str, driver: Any
) -> None:
    registry = paying(database, driver)
    job_id = await insert(connection, "pay")
    async with embedded(database, registry, lease=1) as worker:
        row = await ended(connection, job_id)

        async def is_counted() -> bool:
            samples = Samples(worker.metrics.render())
            return samples.total("pgwake_jobs_completed", kind="pay") == 1

        await wait_for(is_counted)
        lost = total(worker, "leases_lost")

    assert (row["status"], row["result"], row["attempt"]) == (
        "completed",
        {"paid": 1},
        1,
    )
    assert lost == 0
    assert await paid(connection) == (1, 1)
    assert await job(connection, job_id) == row


@pytest.mark.parametrize("driver", DRIVERS)
async def test_a_lost_lease_rolls_it_back(
    connection: Connection, connect: Connect, database: str, driver: Any
) -> None:
    other = await connect()
    here = asyncio.get_running_loop()

    def lose(job: Job) -> None:
        reason = {"job_id": job.id, "reason": "a test"}
        losing = call(other, "force_fail_job", **reason)
        asyncio.run_coroutine_threadsafe(losing, here).result(10)

    registry = paying(database, driver, before=lose)
    job_id = await insert(connection, "pay")
    async with embedded(database, registry) as worker:
        await wait_for(lambda: total(worker, "leases_lost") == 1)

    row: Row = await job(connection, job_id)
    assert (row["status"], reasons(row)) == ("failed", ["forced"])
    assert await paid(connection) == (0, 0)


async def test_what_a_handler_raises_after_its_commit_is_logged_as_that(
    connection: Connection, database: str
) -> None:
    errors = {"fail": ValueError("no"), "discard": Discard("no"), "snooze": Snooze(60)}
    registry = Registry()

    @registry.job("pay")
    def pay(job: Job, end: str) -> None:
        pay_by_sqlalchemy(database, job)
        if end in errors:
            raise errors[end]
        while not job.should_stop:
            threading.Event().wait(0.01)

    with capture_logs() as lines:
        async with embedded(database, registry) as worker:
            for end in (*errors, "go on"):
                row = await ended(
                    connection, await insert(connection, "pay", payload={"end": end})
                )
                assert (row["status"], row["errors"]) == ("completed", None)
        assert total(worker, "leases_lost") == 0
        assert total(worker, "jobs_completed") == 4

    after = "after it had completed its job"
    told = sorted((line for line in lines if after in line["event"]), key=by_job)
    words = [line["event"].split()[1] for line in told]
    assert words == ["failed", "failed", "stopped", "stopped"]
    failed, discarded, *stopped = told
    assert (failed["error"], discarded["error"]) == ("ValueError: no", "no")
    assert "test_own_transactions.py" in failed["traceback"]
    assert [line["reason"] for line in stopped] == ["snooze", "shutdown"]


def by_job(line: Any) -> int:
    return int(line["job"])

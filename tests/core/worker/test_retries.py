"""Failed attempts: when they are tried again, and what counts as one."""

from datetime import timedelta

import asyncpg
import pytest

from pgwake import Registry
from pgwake.database.connection import backoff
from support import Connection, wait_for
from support.sql.helpers import insert, set_queue
from support.worker.helpers import embedded, ended, insert_some, reasons, run

DATABASE_ERRORS = [
    asyncpg.SerializationError,
    asyncpg.DeadlockDetectedError,
    asyncpg.ConnectionDoesNotExistError,
    asyncpg.AdminShutdownError,
    asyncpg.InterfaceError,
    ConnectionResetError,
    TimeoutError,
]


async def test_a_database_error_of_the_handlers_is_an_attempt_like_any_other(
    connection: Connection, database: str
) -> None:
    starts = 0

    async def fail(number: int) -> None:
        nonlocal starts
        starts += 1
        raise DATABASE_ERRORS[number]("of the handler's")

    registry = Registry()
    registry.job("fail", max_attempts=3)(fail)
    await set_queue(connection, backoff_base=timedelta(milliseconds=1))
    numbers = range(len(DATABASE_ERRORS))
    ids = [await insert(connection, "fail", payload={"number": n}) for n in numbers]
    async with embedded(database, registry):
        rows = [await ended(connection, job_id) for job_id in ids]

    for row in rows:
        assert (row["status"], row["attempt"]) == ("failed", 3)
        assert reasons(row) == ["failed"] * 3
        # Even where the base is next to nothing, there is a pause between attempts.
        assert len({error["at"] for error in row["errors"]}) == 3
    assert starts == 3 * len(DATABASE_ERRORS)


async def test_jobs_that_fail_together_do_not_come_back_together(
    connection: Connection, database: str
) -> None:
    registry = Registry()

    @registry.job("fail")
    async def fail() -> None:
        raise ValueError

    await set_queue(connection, backoff_base=timedelta(hours=1))
    await insert_some(connection, "fail", 1000)

    async def all_have_failed() -> bool:
        return not await connection.fetchval(
            "select count(*) from pgwake.jobs_live where errors is null"
        )

    async with embedded(database, registry):
        await wait_for(all_have_failed)
    busiest = await connection.fetchval(
        "select max(n) from (select count(*) as n from pgwake.jobs_live"
        " group by date_bin('6 minutes', run_at, '2000-01-01')) as tenths"
    )

    # A tenth of them are expected in each tenth of the hour.
    assert 0 < busiest < 200


@pytest.mark.parametrize(
    ("of_job", "of_handler", "of_queue", "attempts"),
    [(1, 2, 3, 1), (None, 2, 3, 2), (None, None, 3, 3), (4, None, None, 4)],
)
async def test_the_limit_of_attempts_is_the_jobs_then_the_handlers_then_the_queues(
    connection: Connection,
    database: str,
    of_job: int | None,
    of_handler: int | None,
    of_queue: int | None,
    attempts: int,
) -> None:
    async def fail() -> None:
        raise ValueError

    await set_queue(connection, backoff_base=timedelta(0), max_attempts=of_queue)
    row = await run(
        connection,
        database,
        fail,
        columns={"max_attempts": of_job},
        max_attempts=of_handler,
    )

    assert (row["status"], row["attempt"]) == ("failed", attempts)
    assert reasons(row) == ["failed"] * attempts


def test_reconnects_are_spread_too() -> None:
    pauses = [backoff(10) for _ in range(1000)]

    assert all(0 < pause <= 2 for pause in pauses)
    tenths = [sum(n <= pause * 5 < n + 1 for pause in pauses) for n in range(10)]
    assert max(tenths) < 200

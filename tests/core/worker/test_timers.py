"""Jobs that are due later start by a timer, whatever the calendar says."""

from datetime import datetime, timedelta

from support import Connection
from support.sql.helpers import insert, job
from support.worker.helpers import asleep, embedded, ended
from support.worker.metrics import wakeups
from support.worker.registries import quick


async def test_a_delayed_job_starts_by_a_timer(
    connection: Connection, database: str
) -> None:
    async with embedded(database, quick()) as worker:
        await asleep(worker)
        run_at: datetime = await connection.fetchval("select now() + interval '1 s'")
        job_id = await insert(connection, "quick", run_at=run_at)
        row = await ended(connection, job_id, within=10)
        assert wakeups(worker, cause="timer") >= 1

    # Long before the poll.
    assert timedelta(0) <= row["started_at"] - run_at < timedelta(seconds=10)


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


async def test_jobs_at_both_ends_of_the_calendar_are_no_obstacle(
    connection: Connection, database: str
) -> None:
    later = ("2999-12-31", "9999-12-30")
    for run_at in (*later, "0001-01-02"):
        await connection.execute(
            f"insert into pgwake.jobs (kind, run_at) values ('quick', '{run_at} UTC')"
        )
    async with embedded(database, quick()) as worker:
        await asleep(worker)
        row = await ended(connection, await insert(connection, "quick"), within=10)
        assert (await ended(connection, 3))["status"] == "completed"

    assert row["status"] == "completed"
    assert await connection.fetchval("select count(*) from pgwake.jobs_live") == 2

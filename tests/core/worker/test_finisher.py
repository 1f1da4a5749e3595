"""The order in which ends of jobs are written."""

from collections.abc import Iterator
from time import monotonic

import pytest
from structlog.testing import capture_logs

from pgwake.database.session import Session
from pgwake.database.statements.claim import claim_rows
from pgwake.engine.ends import Telemetry
from pgwake.engine.finisher import Finisher
from pgwake.engine.held_jobs import HeldJobs
from pgwake.engine.progress import ProgressReports
from pgwake.jobs.attempt import Attempt
from pgwake.observe.joblog import JobLog
from pgwake.observe.metrics import Metrics
from support import Connection
from support.sql.helpers import insert_many

BEFORE = """
select count(*) from pgwake.jobs_failed
where finished_at < (select finished_at from pgwake.jobs_finished)
"""


@pytest.fixture
def session(database: str) -> Iterator[Session]:
    session = Session(database, "pgwake:finisher", "ends", 10)
    yield session
    session.close()


async def running(
    connection: Connection, session: Session, count: int
) -> tuple[Finisher, list[Attempt]]:
    """Claim jobs, and have a finisher for them."""
    await insert_many(connection, count)
    claim = await session.call(lambda c: claim_rows(c, "default", count, "w1", None))
    telemetry = Telemetry(Metrics([]), JobLog(0))
    finisher = Finisher(session, HeldJobs(), telemetry, ProgressReports(session))
    return finisher, Attempt.from_claim(claim, monotonic())


async def test_a_completion_does_not_wait_for_failures_that_came_before(
    connection: Connection, session: Session
) -> None:
    finisher, (*bad, good) = await running(connection, session, 601)
    for job in bad:
        finisher.fail(job, "down", retryable=False)
    finisher.complete(good, None)
    await finisher.write_all()

    states = "select count(*), count(*) filter (where status = 'failed')"
    (row,) = await connection.fetch(f"{states} from pgwake.jobs")
    assert tuple(row) == (601, 600)
    assert await connection.fetchval(BEFORE) == 0
    # Nor does one that comes meanwhile wait for more than a hundred of them.
    batches = await connection.fetch(
        "select count(*) from pgwake.jobs_failed group by xmin::text"
    )
    assert [count for (count,) in batches] == [100] * 6


async def test_ends_that_are_written_twice_are_told_as_the_first_time(
    connection: Connection, session: Session
) -> None:
    """As after a lost answer, or by the copy of a loop that did not end in time."""
    finisher, (again, dead, good) = await running(connection, session, 3)
    finisher.fail(again, ValueError("down"))
    finisher.fail(dead, ValueError("down"), retryable=False)
    finisher.complete(good, None)
    copy = finisher.copy_for_exit(session)
    with capture_logs() as first:
        await copy.write_all()
    with capture_logs() as second:
        await finisher.write_all()
    assert {"attempt failed, will retry", "job failed for good"} <= {
        line["event"] for line in first
    }
    assert second == first

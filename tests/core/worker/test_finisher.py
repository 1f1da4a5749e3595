"""The order in which ends of jobs are written."""

from collections.abc import Iterator, Sequence
from time import monotonic

import pytest
from structlog.testing import capture_logs

from pgwake.database.connection import Connection as Driver
from pgwake.database.session import Session
from pgwake.database.statements.claim import Claim, claim_rows
from pgwake.engine.ends import EndReporter
from pgwake.engine.finisher import Finisher
from pgwake.engine.held_jobs import HeldJobs
from pgwake.engine.progress import ProgressReports
from pgwake.jobs.attempt import Attempt
from pgwake.observe.joblog import JobLog
from pgwake.observe.metrics import Metrics
from support import Connection
from support.sql.helpers import insert, insert_many

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
    return await claimed(session, count)


async def claimed(session: Session, count: int) -> tuple[Finisher, list[Attempt]]:
    claim = await session.call(lambda c: claim_rows(c, "default", count, "w1", None))
    reporter = EndReporter(Metrics([]), JobLog(0))
    finisher = Finisher(session, HeldJobs(), reporter, ProgressReports(session))
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


async def first_of_two(
    connection: Connection, session: Session
) -> tuple[Finisher, Attempt]:
    """Claim the first of two jobs of a key, and have a finisher for it."""
    for _ in range(2):
        await insert(connection, concurrency_key="a")
    finisher, (job,) = await claimed(session, 9)
    return finisher, job


class Claiming:
    """Claims that write ends; told to, the server closes a connection that has."""

    def __init__(self, session: Session, *, is_cut: bool = False) -> None:
        self._session = session
        self._is_cut = is_cut

    async def __call__(self, ends: Sequence[object]) -> Claim:
        return await self._session.call(lambda c: self._claim(c, ends))

    async def _claim(self, connection: Driver, ends: Sequence[object]) -> Claim:
        claim = await claim_rows(connection, "default", 9, "w1", None, ends=ends)
        if self._is_cut:
            self._is_cut = False
            await connection.execute("select pg_terminate_backend(pg_backend_pid())")
        return claim


async def test_the_statement_that_ends_a_job_starts_the_next_one_of_its_key(
    connection: Connection, session: Session
) -> None:
    finisher, job = await first_of_two(connection, session)
    finisher.complete(job, "1")
    claim = await finisher.write_with(Claiming(session), "default")

    assert claim is not None
    assert (len(claim.jobs), claim.outcomes) == (1, ["completed"])
    assert await finisher.write_with(Claiming(session), "default") is None  # no end


async def test_an_end_whose_claim_has_lost_its_answer_is_told_once(
    connection: Connection, session: Session
) -> None:
    finisher, job = await first_of_two(connection, session)
    finisher.complete(job, "1")
    with capture_logs() as lines:
        claim = await finisher.write_with(Claiming(session, is_cut=True), "default")

    assert claim is not None
    assert (claim.jobs, claim.outcomes) == ([], ["completed"])  # the first one took it
    assert "session recovered" in [line["event"] for line in lines]
    await finisher.write_all()
    assert await connection.fetchval("select sum(attempt) from pgwake.jobs") == 2


async def test_an_end_that_is_refused_refuses_no_claim(
    connection: Connection, session: Session
) -> None:
    finisher, job = await first_of_two(connection, session)
    finisher.complete(job, '"\\ud800"')  # no text that a database can store
    assert await finisher.write_with(Claiming(session), "default") is None

    await finisher.write_all()
    errors = f"select errors from pgwake.jobs where id = {job.id}"
    assert (await connection.fetchval(errors))[0]["reason"] == "invalid"

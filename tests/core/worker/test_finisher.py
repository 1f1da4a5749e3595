"""The order in which ends of jobs are written."""

from time import monotonic

from pgwake.database.session import Session
from pgwake.database.statements.claim import claim_batch
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


async def test_a_completion_does_not_wait_for_failures_that_came_before(
    connection: Connection, database: str
) -> None:
    await insert_many(connection, 601)
    session = Session(database, "pgwake:finisher", "ends", 10)
    claim = await session.call(lambda c: claim_batch(c, "default", 601, "w1", None))
    *bad, good = Attempt.from_claim(claim, monotonic())
    telemetry = Telemetry(Metrics([]), JobLog(0))
    finisher = Finisher(session, HeldJobs(), telemetry, ProgressReports(session))
    try:
        for job in bad:
            finisher.fail(job, "down", retryable=False)
        finisher.complete(good, None)
        await finisher.write_all()
    finally:
        session.close()

    states = "select count(*), count(*) filter (where status = 'failed')"
    (row,) = await connection.fetch(f"{states} from pgwake.jobs")
    assert tuple(row) == (601, 600)
    assert await connection.fetchval(BEFORE) == 0
    # Nor does one that comes meanwhile wait for more than a hundred of them.
    batches = await connection.fetch(
        "select count(*) from pgwake.jobs_failed group by xmin::text"
    )
    assert [count for (count,) in batches] == [100] * 6

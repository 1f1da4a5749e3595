"""What the jobs that a job depends on came to, as its handler reads it."""

from typing import Any

from pgwake import Job, Registry
from support import Connection
from support.sql.helpers import call, insert, pair
from support.worker.balance import run
from support.worker.helpers import embedded, ended


async def test_the_results_of_the_parents_come_in_the_order_of_depends_on(
    connection: Connection, database: str
) -> None:
    registry = Registry()
    seen: list[Any] = []

    @registry.job("sum")
    async def sum_up(job: Job) -> None:
        seen.extend(await job.parent_results())

    parents = [await insert(connection, kind) for kind in ("a", "b", "c")]
    claimed = await connection.fetch("select * from pgwake.claim_jobs('default', 3)")
    a, b, c = [pair(dict(claim)) for claim in claimed]
    await call(connection, "complete_job", **a, result={"n": [1]})
    await call(connection, "fail_job", **b, retryable=False)
    await call(connection, "complete_job", **c, result=3)
    order = [parents[2], parents[0], parents[1]]
    job_id = await insert(connection, "sum")
    await connection.execute(
        "update pgwake.jobs_live set depends_on = $1 where id = $2", order, job_id
    )
    async with embedded(database, registry):
        row = await ended(connection, job_id)
    assert row["status"] == "completed", row
    assert seen == [
        (parents[2], "c", "completed", 3),
        (parents[0], "a", "completed", {"n": [1]}),
        (parents[1], "b", "failed", None),
    ]
    assert seen[0].result == 3


async def test_a_job_without_parents_has_no_results_of_them(
    connection: Connection, database: str
) -> None:
    async def alone(job: Job) -> int:
        return len(await job.parent_results())

    row, _ = await run(connection, database, alone)
    assert row["result"] == 0

"""Workers and jobs that depend on others.

The poll is an hour away, so only a wake-up, a timer or the upkeep can start a job.
"""

from support import Connection
from support.sql.helpers import call, insert, job, set_queue
from support.worker.helpers import all_ended, asleep, embedded
from support.worker.metrics import wakeups
from support.worker.registries import quick


async def test_a_chain_and_a_fan_in_run_in_order_without_a_poll(
    connection: Connection, database: str
) -> None:
    async with embedded(database, quick()) as one:
        await asleep(one)
        async with embedded(database, quick()) as other:
            parents: list[int] = []
            for _ in range(10):
                parents = [
                    await insert(connection, "quick", depends_on=parents or None)
                ]
            parents = [
                await insert(connection, "quick", depends_on=parents) for _ in range(20)
            ]
            await insert(connection, "quick", depends_on=parents)
            await all_ended(connection)
            assert wakeups(one, cause="poll") + wakeups(other, cause="poll") == 0

    early = await connection.fetchval(
        "select count(*) from pgwake.jobs as c"
        " join pgwake.jobs as p on p.id = any (c.depends_on)"
        " where c.started_at < p.finished_at or p.status <> 'completed'"
    )
    assert early == 0


async def test_the_upkeep_cancels_children_in_queues_that_nobody_works_on(
    connection: Connection, database: str
) -> None:
    await set_queue(connection, "nobody")
    later = await connection.fetchval("select now() + interval '1 hour'")
    parent = await insert(connection, run_at=later)
    child = await insert(connection, queue="nobody", depends_on=[parent])
    last = await insert(connection, queue="nobody", depends_on=[child])
    async with embedded(database, quick()):
        await call(connection, "cancel_job", job_id=parent)
        await all_ended(connection)
    for job_id in (child, last):
        assert (await job(connection, job_id))["status"] == "cancelled"

"""The HTTP API, what it tells: stats, history, jobs, dead letters, workers."""

from sql.helpers import insert, job_in
from support import Connection
from worker.api import serving


async def test_stats_tell_what_stands_in_each_queue(
    connection: Connection, database: str
) -> None:
    async with serving(database) as api:
        await job_in(connection, "completed", queue="q")
        await job_in(connection, "failed", queue="q")
        await job_in(connection, "running", queue="q")
        await insert(connection, queue="q")
        answer = await api.get("/api/queue/stats")
    found = answer.json()
    (q,) = [one for one in found["queues"] if one["queue"] == "q"]
    assert (q["queue_size"], q["active_tasks"], q["failed"]) == (1, 1, 1)
    assert found["tasks_completed"] == 1

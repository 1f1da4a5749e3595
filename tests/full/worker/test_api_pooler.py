"""The HTTP API behind a real PgBouncer, which lends a session for each transaction."""

import asyncio
from datetime import datetime

from support import Connect, Connection
from support.sql.helpers import insert, job
from support.worker.api import serving
from support.worker.pgbouncer import pgbouncer


async def test_the_api_works_behind_a_transaction_pooler_and_leaves_nothing_there(
    connection: Connection, connect: Connect, database: str
) -> None:
    name = await connection.fetchval("select current_database()")
    await connection.execute(f"alter database {name} set timezone = 'Asia/Tokyo'")
    job_id = await insert(connection, queue="q")
    row = await job(connection, job_id)
    with pgbouncer(database, "transaction") as url:
        async with serving(url, listen_url=database) as api:
            bodies = [{"kind": "a", "unique_key": str(n % 3)} for n in range(12)]
            pushed = await asyncio.gather(
                *(api.post("/queues/q/push", json=body) for body in bodies)
            )
            assert {answer.status_code for answer in pushed} == {201}
            assert sum(one.json()["jobs"][0]["is_new"] for one in pushed) == 3
            for path in (
                "/api/queue/stats",
                "/api/jobs",
                "/api/failed",
                "/api/workers",
            ):
                answers = await asyncio.gather(*(api.get(path) for _ in range(8)))
                assert {answer.status_code for answer in answers} == {200}
            shown = (await api.get(f"/api/jobs/{job_id}")).json()
            assert datetime.fromisoformat(shown["created_at"]) == row["created_at"]
            assert shown["created_at"].endswith("+00:00")
        through = await connect(url, statement_cache_size=0)
        for _ in range(8):
            assert await through.fetchval("show timezone") == "Asia/Tokyo"
            assert await through.fetchval("show statement_timeout") == "0"

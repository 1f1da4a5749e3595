"""A process with many queues: idle ones are asked about together."""

import pytest

from support import Connect, Connection, wait_for
from support.sql.helpers import insert
from support.worker.helpers import embedded, ended
from support.worker.metrics import wakeups
from support.worker.registries import quick

QUEUES = 40
CALLS = "select calls from pg_stat_user_functions where funcname = $1"


async def test_idle_queues_are_polled_together_and_jobs_are_found(
    connection: Connection,
    connect: Connect,
    admin_url: str,
    database: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Those too for which it can't be woken, since they are too many."""
    monkeypatch.setattr("pgwake.engine.assembly.MAX_QUEUES", 1)
    name = database.rpartition("/")[2]
    admin = await connect(admin_url)
    await admin.execute(f'alter database "{name}" set track_functions = pl')
    queues = ",".join(f"q{n}:1" for n in range(QUEUES))

    async def calls(function: str) -> int:
        return await connection.fetchval(CALLS, function) or 0

    async with embedded(database, quick(), queues=queues, poll_interval=0.5) as worker:
        while wakeups(worker, cause="poll") < 3:  # the first may come before it sleeps
            job_id = await insert(connection, "quick", queue=f"q{QUEUES - 1}")
            assert (await ended(connection, job_id))["status"] == "completed"
        await ended(connection, await insert(connection, "quick", queue="q0"))

    async def have_told() -> bool:
        return await calls("forget_worker") == 1

    await wait_for(have_told)
    # Claims are for those that come before it is a crowd, and for those that have jobs.
    assert 0 < await calls("claim_rows") < QUEUES

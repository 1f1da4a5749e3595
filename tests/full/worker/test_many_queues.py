"""A process with many queues: idle ones are asked about together."""

import pytest

from support import Connect, Connection, wait_for
from support.sql.helpers import insert
from support.worker.helpers import embedded, ended
from support.worker.metrics import Samples, wakeups
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
        await wait_for(
            lambda: (
                Samples(worker.metrics.render()).total("pgwake_claim_seconds") >= QUEUES
            )
        )
        for polls in range(1, 4):
            job_id = await insert(connection, "quick", queue=f"q{QUEUES - polls}")
            row = await ended(connection, job_id)
            assert row["status"] == "completed"
            assert wakeups(worker, cause="poll") >= polls
        await ended(connection, await insert(connection, "quick", queue="q0"))

    async def have_told() -> bool:
        return await calls("forget_worker") == 1

    await wait_for(have_told)
    assert await calls("next_run_at") >= 3 * QUEUES
    # Each queue's first look, and a few at those that have had a job, or a notify lock.
    assert await calls("claim_batch") < QUEUES + 30

"""What a dead worker had is taken over by others, and what a live one has is not."""

import signal
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from pgwake import Registry
from support import Connection
from support.sql.helpers import insert, job
from support.worker.helpers import (
    all_ended,
    asleep,
    embedded,
    ended,
    in_status,
    reasons,
)
from support.worker.processes import Diary, StartProcess, WorkerProcess
from support.worker.registries import quick


async def kill(process: WorkerProcess) -> None:
    """End a process as a power cut would."""
    process.send(signal.SIGKILL)
    await process.exit_code()


@pytest.mark.parametrize("named", [{}, {"test_worker_name": "twin"}], ids=str)
async def test_the_jobs_of_a_dead_worker_run_again_after_their_lease(
    connection: Connection,
    start_application: StartProcess,
    diary: Diary,
    tmp_path: Path,
    named: dict[str, str],
) -> None:
    """One that takes the name of the dead one does not keep its jobs either."""
    first = await start_application(lease=1, **named)
    payload = {"until": str(tmp_path / "go")}
    ids = [await insert(connection, "hold", payload=payload) for _ in range(3)]
    await diary.has(3, event="start")
    await kill(first)
    second = await start_application(lease=1, **named)
    entries = await diary.has(3, event="start", pid=second.pid)
    (tmp_path / "go").touch()
    rows = [await ended(connection, job_id) for job_id in ids]

    assert {entry["job"] for entry in entries} == set(ids)
    for row in rows:
        assert (row["status"], row["attempt"]) == ("completed", 1)
        assert (row["crash_count"], reasons(row)) == (1, ["crashed"])
        assert "the lease ran out" in row["errors"][0]["message"]
        assert not named or row["claimed_by"] == "twin"


async def test_a_worker_of_other_queues_gives_back_what_a_dead_one_had(
    connection: Connection, start_application: StartProcess, diary: Diary, database: str
) -> None:
    first = await start_application(lease=1)
    job_id = await insert(connection, "nap", payload={"seconds": 60})
    await diary.has(event="start")
    await kill(first)

    registry = Registry()

    @registry.job("other", queue="other")
    async def other() -> None: ...

    async with embedded(database, registry, lease=1) as worker:
        row = await in_status(connection, job_id, "pending")
        assert worker.queues == {"other": 10}

    assert (row["attempt"], row["crash_count"]) == (0, 1)


async def test_jobs_whose_lease_ran_out_long_ago_run_when_a_worker_comes(
    connection: Connection, database: str
) -> None:
    await insert(connection, "quick")
    await connection.execute(
        "select pgwake.claim_next_job(worker => 'gone', lease => '1 second')"
    )
    await connection.execute(
        "update pgwake.jobs_live set lease_expires_at = now() - interval '1 hour'"
    )
    registry = quick()

    async with embedded(database, registry, lease=1):
        await all_ended(connection)

    row = await job(connection, 1)
    assert (row["status"], row["crash_count"]) == ("completed", 1)


async def test_nobody_is_swept_right_after_a_worker_has_come_up(
    connection: Connection, database: str
) -> None:
    # As after an outage: others must have had the time to renew before.
    await insert(connection, "quick")
    await connection.execute("select pgwake.claim_next_job(worker => 'slow to return')")
    before = await connection.fetchval(
        "update pgwake.jobs_live set lease_expires_at = now() - interval '1 hour'"
        " returning clock_timestamp()"
    )
    registry = quick()

    async with embedded(database, registry, lease=8):
        await all_ended(connection)

    (error,) = (await job(connection, 1))["errors"]
    # One renewal interval of 2 s, and the longest pause of a reconnect.
    assert datetime.fromisoformat(error["at"]) - before > timedelta(seconds=4)


async def test_what_is_given_back_to_a_queue_wakes_its_workers(
    connection: Connection, database: str
) -> None:
    await insert(connection, "quick")
    await connection.execute("select pgwake.claim_next_job(worker => 'dead')")
    async with embedded(database, quick()) as worker:  # idle, it polls once an hour
        await asleep(worker)
        await connection.execute("select pgwake.release_worker_jobs('dead')")
        await all_ended(connection)

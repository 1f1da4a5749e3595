"""What a dead worker had is taken over by others, and what a live one has is not."""

import os
import signal
from datetime import datetime, timedelta
from pathlib import Path

from pgwake import Registry
from support import Connection
from support.sql.helpers import insert, job
from support.worker.helpers import (
    all_ended,
    embedded,
    ended,
    in_status,
    quick,
    reasons,
)
from support.worker.processes import Diary, StartProcess, WorkerProcess


async def kill(process: WorkerProcess) -> None:
    """End a process as a power cut would."""
    process.send(signal.SIGKILL)
    await process.exit_code()


async def test_the_jobs_of_a_dead_worker_run_again_after_their_lease(
    connection: Connection,
    start_application: StartProcess,
    diary: Diary,
    tmp_path: Path,
) -> None:
    first = await start_application(lease=1)
    ids = [
        await insert(connection, "hold", payload={"until": str(tmp_path / "go")})
        for _ in range(3)
    ]
    await diary.has(3, event="start")
    await kill(first)
    second = await start_application(lease=1)
    entries = await diary.has(3, event="start", pid=second.pid)
    (tmp_path / "go").touch()
    rows = [await ended(connection, job_id) for job_id in ids]

    assert {entry["job"] for entry in entries} == set(ids)
    for row in rows:
        assert (row["status"], row["attempt"]) == ("completed", 1)
        assert (row["crash_count"], reasons(row)) == (1, ["crashed"])
        assert "the lease ran out" in row["errors"][0]["message"]


async def test_a_worker_that_takes_the_name_of_a_dead_one_does_not_keep_its_jobs(
    connection: Connection,
    start_application: StartProcess,
    diary: Diary,
    tmp_path: Path,
) -> None:
    first = await start_application(lease=1, test_worker_name="twin")
    job_id = await insert(connection, "hold", payload={"until": str(tmp_path / "go")})
    await diary.has(event="start")
    await kill(first)
    second = await start_application(lease=1, test_worker_name="twin")
    await diary.has(event="start", pid=second.pid)
    (tmp_path / "go").touch()
    row = await ended(connection, job_id)

    assert (row["status"], row["claimed_by"]) == ("completed", "twin")
    assert reasons(row) == ["crashed"]


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
    connection: Connection, start_worker: StartProcess, diary: Diary, database: str
) -> None:
    worker = await start_worker()
    await insert(connection, "nap", payload={"seconds": 60})
    await diary.has(event="start")

    registry = Registry()

    @registry.job("nap")
    async def nap(seconds: float) -> None: ...

    # The other is idle, and polls once an hour.
    async with embedded(database, registry):
        os.kill(worker.pid, signal.SIGSTOP)  # so that no next child takes it
        os.kill(worker.children[0], signal.SIGKILL)
        name = await connection.fetchval("select claimed_by from pgwake.jobs_live")
        await connection.execute("select pgwake.release_worker_jobs($1)", name)
        await all_ended(connection, within=10)

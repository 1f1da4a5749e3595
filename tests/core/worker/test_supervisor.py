"""A supervisor and its processes: they come and go together."""

import os
import signal
from pathlib import Path

from support import Connection
from support.sql.helpers import insert, job
from support.worker.helpers import all_ended, ended
from support.worker.processes import Diary, StartProcess, gone


async def test_a_process_whose_supervisor_is_killed_ends_what_it_has_and_goes(
    connection: Connection, start_worker: StartProcess, diary: Diary, tmp_path: Path
) -> None:
    worker = await start_worker("--queue", "default:1")
    (pid,) = worker.children
    go = tmp_path / "go"
    running = await insert(connection, "hold", payload={"until": str(go)})
    await diary.has(event="start")
    later = await insert(connection, "hold", payload={"until": str(go)})
    worker.send(signal.SIGKILL)
    await worker.logged("worker stopping", running=1)
    go.touch()
    await gone(pid)

    assert (await job(connection, running))["status"] == "completed"
    assert (await job(connection, later))["status"] == "pending"


async def test_every_process_of_a_supervisor_ends_with_it(
    connection: Connection, start_worker: StartProcess, diary: Diary
) -> None:
    worker = await start_worker("--queue", "default:2", processes=3)
    await connection.execute(
        "insert into pgwake.jobs (kind, payload)"
        " select 'nap', '{\"seconds\": 0.5}' from generate_series(1, 6)"
    )
    await diary.has(6, event="start")
    worker.send(signal.SIGTERM)

    assert await worker.exit_code() == 0
    await all_ended(connection, within=5)
    for pid in worker.children:
        await gone(pid, within=5)


async def test_a_process_that_is_told_to_end_is_replaced(
    connection: Connection, start_worker: StartProcess, diary: Diary
) -> None:
    worker = await start_worker()
    (pid,) = worker.children
    os.kill(pid, signal.SIGTERM)
    await gone(pid)
    await worker.started(2)
    job_id = await insert(connection, "note")
    await ended(connection, job_id)

    assert diary.entries()[0]["pid"] == worker.children[1]
    assert not worker.log("process died")


async def test_a_signal_during_the_start_ends_it(
    start_process: StartProcess, database: str
) -> None:
    worker = await start_process("-m", "pgwake", "run", database_url=database)
    await worker.logged("process started")
    worker.send(signal.SIGTERM)

    assert await worker.exit_code() == 0
    for pid in worker.children:
        await gone(pid, within=5)
    assert not worker.log("process died")

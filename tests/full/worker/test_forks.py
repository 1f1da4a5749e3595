"""What handlers fork: it gets nothing of its worker's, and keeps nothing alive."""

import os
import signal
import subprocess
import sys

from support import Connect, Connection
from support.sql.helpers import insert, job
from support.worker.helpers import ended, in_status
from support.worker.processes import (
    Diary,
    StartProcess,
    clean_environment,
    gone,
    is_alive,
)

HANDLERS = "support.worker.fork_handlers"


async def test_a_handler_may_start_and_fork_processes_and_read_standard_input(
    connection: Connection, start_worker: StartProcess, diary: Diary
) -> None:
    worker = await start_worker(imports=HANDLERS)
    pools = [
        await insert(connection, "pool", payload={"method": method}, max_attempts=1)
        for method in ("fork", "forkserver", "spawn")
    ]
    for job_id in pools:
        assert (await ended(connection, job_id))["result"] == [1, 2, 3]
    reader = await insert(connection, "read stdin", max_attempts=1)
    assert (await ended(connection, reader))["result"] == "end of file"

    for kind in ("fork on the loop", "fork in a thread", "fork in a process"):
        job_id = await insert(connection, kind, max_attempts=1)
        row = await ended(connection, job_id)
        assert (row["status"], row["attempt"]) == ("completed", 1)
        forked = [entry["orphan"] for entry in diary.entries(job=job_id)]
        await gone(max(forked))  # the one that returned into the worker, too
    assert worker.children == worker.children[:1]


async def test_a_fork_hears_a_signal_from_its_first_moment_on(
    connection: Connection, start_worker: StartProcess
) -> None:
    await start_worker(imports=HANDLERS)
    job_id = await insert(connection, "end forks at once", max_attempts=1)

    assert (await ended(connection, job_id))["result"] == [-signal.SIGTERM] * 20


async def test_what_a_dead_workers_handler_has_forked_keeps_nothing_of_it(
    connection: Connection, connect: Connect, start_worker: StartProcess, diary: Diary
) -> None:
    worker = await start_worker(imports=HANDLERS)
    (first,) = worker.children
    job_id = await insert(connection, "leave an orphan")
    (orphan,) = await diary.has(event="orphan")
    (forked,) = await diary.has(event="forked")
    try:
        # Of what is open in the worker it has the selectors, the pipes of the loops and
        # standard output and error: no session, and not the supervisor's pipes.
        sessions = [link for link in forked["links"] if link.startswith("socket:")]
        kept = [link for link in orphan["links"] if link.startswith("socket:")]
        assert len(kept) < len(sessions) - 4
        assert orphan["default"]

        # A session that lives on all the same, in the way of the next attempt.
        name = worker.log("process started")[0]["name"]
        held = await connect(server_settings={"application_name": f"pgwake:{name}/tx"})
        await held.execute("begin")
        running = await in_status(connection, job_id, "running")
        assert running["claimed_by"] == name
        await held.fetch("select from pgwake.jobs_live where id = 1 for share")
        os.kill(first, signal.SIGKILL)
        row = await ended(connection, job_id)

        assert (row["status"], row["crash_count"]) == ("completed", 1)
        assert held.is_closed()
        assert is_alive(orphan["pid"])
        assert not worker.log("give-back timed out, leases will run out")
    finally:
        os.kill(orphan["pid"], signal.SIGKILL)
    assert (await job(connection, job_id))["attempt"] == 1


IN_A_FORK = """
import asyncio, os, sys
from pgwake import Queue, Registry, Settings, Worker

if child := os.fork():
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
registry = Registry()

@registry.job("plain")
def plain() -> str:
    return "done"

async def main() -> None:
    settings = Settings.load()
    async with Queue(settings.dsn) as queue, Worker(settings, registry):
        ended = await queue.wait_for(await queue.enqueue("plain"), timeout=60)
    print(ended.result)

asyncio.run(main())
"""


def test_an_application_that_forks_after_its_imports_may_have_workers(
    database: str,
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", IN_A_FORK],
        env=clean_environment({"PGWAKE_DATABASE_URL": database}),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.splitlines()[-1:] == ["done"], done.stderr

"""Processes that are stopped, loops that are blocked, workers that come back late."""

import asyncio
import os
import signal
import threading
from pathlib import Path

from pgwake import Registry
from support import Connection, wait_for
from support.sql.helpers import insert, job
from support.worker.helpers import (
    all_ended,
    embedded,
    ended,
    in_status,
    insert_some,
    reasons,
)
from support.worker.processes import Diary, StartProcess, gone, is_alive
from support.worker.registries import quick


async def test_a_process_is_killed_and_its_jobs_given_back_if_it_alone_is_stopped(
    connection: Connection, start_worker: StartProcess, diary: Diary, tmp_path: Path
) -> None:
    worker = await start_worker(stall_timeout=4)
    (pid,) = worker.children
    # But not by a pause of the whole machine. First the supervisor is stopped, and it
    # goes on last: so the child is silent for longer.
    os.kill(worker.pid, signal.SIGSTOP)
    os.kill(pid, signal.SIGSTOP)
    await asyncio.sleep(6)  # the pause itself
    os.kill(worker.pid, signal.SIGCONT)
    os.kill(pid, signal.SIGCONT)
    noted = await insert(connection, "note")
    await ended(connection, noted)
    assert [entry["pid"] for entry in diary.entries(job=noted, event="start")] == [pid]
    assert not worker.log("process silent, killed")

    job_id = await insert(connection, "hold", payload={"until": str(tmp_path / "go")})
    await diary.has(job=job_id, event="start")
    os.kill(pid, signal.SIGSTOP)
    await worker.logged("process silent, killed", pid=pid)
    await gone(pid)
    await diary.has(2, job=job_id, event="start")
    (tmp_path / "go").touch()
    row = await ended(connection, job_id)

    # Well under the lease, which is five minutes; never beside the first.
    assert (row["status"], row["attempt"]) == ("completed", 1)
    assert (row["crash_count"], reasons(row)) == (1, ["crashed"])
    starts = diary.entries(job=job_id, event="start")
    assert len({entry["pid"] for entry in starts}) == 2


async def test_a_process_that_waits_for_the_database_is_not_killed_and_ends_when_told(
    start_process: StartProcess, database: str
) -> None:
    nobody = database.replace("127.0.0.1", "127.0.0.2")
    worker = await start_process(
        *("-m", "pgwake", "run"), database_url=nobody, stall_timeout=2
    )
    await worker.logged("session failed", role="upkeep")
    (pid,) = worker.children
    await asyncio.sleep(4)  # twice as long as it may be silent
    assert is_alive(pid)
    assert not worker.log("process silent, killed")
    worker.send(signal.SIGTERM)
    assert await worker.exit_code() == 0


async def test_a_worker_that_comes_back_after_its_lease_is_refused_and_told(
    connection: Connection,
    start_application: StartProcess,
    diary: Diary,
    tmp_path: Path,
) -> None:
    first = await start_application(lease=3)
    job_id = await insert(connection, "hold", payload={"until": str(tmp_path / "go")})
    await diary.has(event="start", pid=first.pid)
    os.kill(first.pid, signal.SIGSTOP)

    second = await start_application(lease=6, poll_interval=0.5)
    await diary.has(event="start", pid=second.pid)
    taken = await job(connection, job_id)
    os.kill(first.pid, signal.SIGCONT)

    # Its handler hears of it, and has no way to end the job.
    (told,) = await diary.has(event="cancelled", pid=first.pid)
    assert told["reason"] == "lease_lost"
    await first.logged("lease lost, end refused", job=job_id)
    now = await job(connection, job_id)
    for column in ("status", "attempt", "lease_id", "claimed_by", "errors"):
        assert now[column] == taken[column]

    (tmp_path / "go").touch()
    row = await ended(connection, job_id)
    assert (row["status"], row["claimed_by"]) == ("completed", taken["claimed_by"])
    assert len(diary.entries(event="end")) == 1


async def test_an_end_that_comes_after_the_lease_is_refused_and_counted(
    connection: Connection, start_application: StartProcess, diary: Diary
) -> None:
    first = await start_application(lease=3)
    # Its handler blocks the loop: it ends at once when its process goes on.
    job_id = await insert(connection, "block", payload={"seconds": 2})
    await diary.has(event="start", pid=first.pid)
    os.kill(first.pid, signal.SIGSTOP)
    await start_application(lease=6, poll_interval=0.5)
    row = await ended(connection, job_id)
    os.kill(first.pid, signal.SIGCONT)
    await diary.has(event="end", pid=first.pid)
    await first.logged("lease lost, end refused", job=job_id)

    assert await job(connection, job_id) == row


async def test_a_worker_that_comes_back_starts_nothing_whose_lease_is_lost(
    connection: Connection, start_application: StartProcess, diary: Diary
) -> None:
    # Fast jobs are claimed ahead of the slots, and so many are unstarted at the stop.
    first = await start_application(lease=3, queues="default:1")
    await insert_some(connection, "note", 3000)
    await diary.has(100, event="start")
    os.kill(first.pid, signal.SIGSTOP)
    held = await connection.fetchval(
        "select count(*) from pgwake.jobs_live where status = 'running'"
    )
    assert held > 1, "nothing was claimed ahead"
    await start_application(lease=6, poll_interval=0.5)
    await all_ended(connection)
    before = len(diary.entries(event="start", pid=first.pid))
    os.kill(first.pid, signal.SIGCONT)
    await first.logged("lease lost, end refused")

    # At most what its one slot was about to run when it was stopped.
    assert len(diary.entries(event="start", pid=first.pid)) - before <= 1
    await ended(connection, await insert(connection, "note"))
    assert len(diary.entries(event="start", pid=first.pid)) - before <= 2


async def test_a_blocked_loop_keeps_its_leases_and_gives_back_what_is_unstarted(
    connection: Connection, start_worker: StartProcess, diary: Diary, database: str
) -> None:
    worker = await start_worker("--queue", "default:1", lease=6)
    registry = Registry()
    registry.job("note")(lambda: None)
    rounds = 0
    while True:
        rounds += 1
        given_back = len(worker.log("jobs given back"))
        # A rate of quick jobs, so that it claims ahead, then one that blocks.
        await connection.execute(
            "insert into pgwake.jobs (kind, payload)"
            " select 'note', '{}'::jsonb from generate_series(1, 300)"
            " union all select 'block', '{\"seconds\": 9}'"
            " union all select 'note', '{}' from generate_series(1, 300)"
        )
        *_, blocking = await diary.has(rounds, kind="block", event="start")
        await worker.logged("main loop blocked", rounds, kinds=["block"])

        def is_over(seen: int = given_back, ends: int = rounds) -> bool:
            return (
                len(worker.log("jobs given back")) > seen
                or len(diary.entries(kind="block", event="end")) == ends
            )

        await wait_for(is_over)
        if len(worker.log("jobs given back")) > given_back and not (
            await connection.fetchval(
                "select count(*) from pgwake.jobs_live"
                " where status = 'running' and id > $1",
                blocking["job"],
            )
        ):
            break
        # It had claimed nothing ahead, or not yet read an answer: once more.
        await all_ended(connection)

    async with embedded(database, registry):  # another gets them

        async def nothing_is_pending() -> bool:
            return not await connection.fetchval(
                "select count(*) from pgwake.jobs_live where status = 'pending'"
            )

        await wait_for(nothing_is_pending)
    row = await ended(connection, blocking["job"])
    await all_ended(connection)

    assert (row["status"], row["crash_count"]) == ("completed", 0)
    assert len(diary.entries(kind="block", event="start")) == rounds
    # Those given back have lost nothing.
    assert not await connection.fetchval(
        "select count(*) from pgwake.jobs"
        " where id > $1 - 301 and (attempt > 1 or crash_count > 0)",
        blocking["job"],
    )


async def test_a_thread_that_blocks_takes_nothing_from_the_loop(
    connection: Connection, database: str
) -> None:
    registry, go = quick(), threading.Event()

    @registry.job("thread")
    def thread() -> None:
        go.wait(20)

    slow = await insert(connection, "thread")
    async with embedded(database, registry, queues="default:3"):
        await in_status(connection, slow, "running")
        for _ in range(5):
            await ended(connection, await insert(connection, "quick"))
        assert (await in_status(connection, slow, "running"))["attempt"] == 1
        go.set()

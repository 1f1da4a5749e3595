"""Time limits: a failed attempt of its own kind; what can't be stopped is ended."""

import asyncio
import itertools
import threading
from datetime import datetime, timedelta
from typing import Any

from pgwake import Job, Registry
from support import Connection, wait_for
from support.sql.helpers import insert, job, set_queue
from support.worker.helpers import Row, clock, embedded, ended, reasons
from support.worker.metrics import Samples
from support.worker.processes import Diary, StartProcess


def sleeper(max_attempts: int) -> Registry:
    registry = Registry()

    @registry.job("sleep", timeout=0.05, max_attempts=max_attempts)
    async def sleep() -> None:
        await asyncio.sleep(3600)

    return registry


async def test_a_job_that_timed_out_is_a_dead_letter_after_its_last_attempt(
    connection: Connection, database: str
) -> None:
    await set_queue(connection, backoff_base=timedelta(0))
    job_id = await insert(connection, "sleep")
    async with embedded(database, sleeper(max_attempts=3)) as worker:
        row = await ended(connection, job_id)
    samples = Samples(worker.metrics.render())

    assert (row["status"], row["attempt"]) == ("failed", 3)
    assert reasons(row) == ["timeout"] * 3
    assert row["errors"][0]["message"] == "timed out after 0.05 s"
    # Never seen as cancelled: nobody had asked for that.
    assert samples.total("pgwake_jobs_cancelled") == 0
    assert samples.total("pgwake_jobs_retried") == 2
    assert samples.total("pgwake_jobs_failed") == 1


async def test_between_two_time_outs_the_backoff_is_waited(
    connection: Connection, database: str
) -> None:
    job_id = await insert(connection, "sleep")
    async with embedded(database, sleeper(max_attempts=3)):
        row = await ended(connection, job_id)

    moments = [datetime.fromisoformat(error["at"]) for error in row["errors"]]
    # The least delay is 100 ms, and the attempt itself takes 50 ms.
    for earlier, later in itertools.pairwise(moments):
        assert later - earlier >= timedelta(milliseconds=150)


async def test_a_time_limit_does_not_outlive_its_job(
    connection: Connection, database: str
) -> None:
    registry = Registry()

    @registry.job("quick", timeout=0.3)
    async def quick() -> None: ...

    @registry.job("long")
    async def long() -> str:
        await asyncio.sleep(1)
        return "done"

    first = await insert(connection, "quick")
    second = await insert(connection, "long")
    # One slot, whose task both jobs share.
    async with embedded(database, registry, queues="default:1"):
        within = await ended(connection, first)
        row = await ended(connection, second)

    assert within["status"] == "completed"
    assert (row["status"], row["result"]) == ("completed", "done")


async def test_what_holds_on_past_its_time_limit_ends_the_process(
    connection: Connection, start_worker: StartProcess, diary: Diary
) -> None:
    await set_queue(connection, backoff_base=timedelta(0))
    worker = await start_worker("--queue", "default:3")
    neighbour = await insert(
        connection, "nap", payload={"seconds": 600}, max_attempts=1
    )
    await diary.has(job=neighbour, event="start")
    # The attempts that a handler declares hold for a hard limit too.
    cases: list[tuple[str, Row, int]] = [
        ("thread briefly", {"max_attempts": 1}, 1),
        ("stubborn briefly", {"max_attempts": 1}, 1),
        ("block briefly", {}, 2),
    ]
    for kind, columns, attempts in cases:
        # In one claim, so that the first has ended, unwritten, when the second blocks.
        async with connection.transaction():
            quick = await insert(connection, "note")
            hung = await insert(connection, kind, payload={"seconds": 60}, **columns)
        row = await ended(connection, hung)
        for pid in {entry["pid"] for entry in diary.entries(job=hung, event="start")}:
            await worker.logged("process died", pid=pid, exit=70)

        # Recorded once, as what it was, and not as a crash.
        found = (row["status"], row["attempt"], row["crash_count"])
        assert found == ("failed", attempts, 0), kind
        assert reasons(row) == ["timeout"] * attempts, kind
        assert len(diary.entries(job=hung, event="start")) == attempts, kind
        # What has ended beside it is not run again.
        row = await ended(connection, quick)
        assert (row["status"], row["attempt"]) == ("completed", 1), kind
        assert len(diary.entries(job=quick, event="start")) == 1, kind
        # The neighbour has lost no attempt, and runs again in the next process.
        next_one = len(worker.log("process died")) + 1
        pid = (await worker.logged("process started", next_one))["pid"]
        await diary.has(job=neighbour, event="start", pid=pid)
        row = await job(connection, neighbour)
        found = (row["status"], row["attempt"], row["crash_count"])
        assert found == ("running", 1, 0), kind
        bounces = len(diary.entries(job=neighbour, event="start")) - 1
        assert (row["bounce_count"], row["errors"]) == (bounces, None), kind


async def test_a_thread_that_outlives_its_limit_keeps_its_job_from_others(
    connection: Connection, database: str
) -> None:
    # Embedded: the process is not pgwake's to end.
    registry = Registry()
    told: list[Any] = []  # attempts
    release = threading.Event()

    @registry.job("thread", timeout=0.1, max_attempts=2)
    def thread(job: Job) -> None:
        told.append(job)
        release.wait(20)

    await set_queue(connection, backoff_base=timedelta(0))
    job_id = await insert(connection, "thread")
    async with embedded(database, registry, cancel_grace=0.1):
        await wait_for(
            lambda: told and told[0].stopped_at and clock() > told[0].stopped_at + 0.5,
            10,
        )
        assert (await job(connection, job_id))["status"] == "running"
        assert len(told) == 1
        release.set()
        row = await ended(connection, job_id)

    assert (row["status"], row["attempt"]) == ("completed", 2)
    assert reasons(row) == ["timeout"]

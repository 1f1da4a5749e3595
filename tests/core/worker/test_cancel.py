"""cancel_job of a job that runs: its worker honours it at the next renewal."""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Any

import pytest

from pgwake import Job, Registry, Snooze
from support import Connection
from support.sql.helpers import call, insert
from support.worker.helpers import embedded, ended, in_status, reasons
from support.worker.metrics import Samples
from support.worker.processes import Diary, StartProcess


async def test_a_running_job_is_cancelled(
    connection: Connection, database: str
) -> None:
    registry = Registry()
    heard: list[tuple[type[BaseException], object]] = []

    @registry.job("sleep")
    async def sleep(job: Job) -> None:
        try:
            await asyncio.sleep(3600)
        except BaseException as error:
            heard.append((type(error), job.stop_reason))
            raise

    job_id = await insert(connection, "sleep")
    async with embedded(database, registry, lease=10) as worker:
        await in_status(connection, job_id, "running")
        assert await call(connection, "cancel_job", job_id=job_id) == "cancel_requested"
        row = await ended(connection, job_id)
    samples = Samples(worker.metrics.render())

    assert row["status"] == "cancelled"
    assert row["cancel_requested_at"] is not None
    assert heard == [(asyncio.CancelledError, "cancelled")]
    for name in ("claimed", "cancelled"):
        assert samples.total(f"pgwake_jobs_{name}", kind="sleep") == 1
    assert samples.total("pgwake_jobs_failed") == 0


async def swallow() -> str:
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.sleep(3600)
    return "done all the same"


async def fail() -> None:
    try:
        await asyncio.sleep(3600)
    finally:
        raise ValueError("in the midst of it")


async def snooze() -> None:
    try:
        await asyncio.sleep(3600)
    finally:
        raise Snooze(0)


def look(job: Job) -> None:
    never = threading.Event()
    while not job.should_stop:
        never.wait(0.01)


@pytest.mark.parametrize("handler", [swallow, fail, snooze, look])
async def test_however_a_handler_takes_it_its_job_ends_as_cancelled(
    connection: Connection, database: str, handler: Callable[..., Any]
) -> None:
    registry = Registry()
    registry.job("stop")(handler)
    job_id = await insert(connection, "stop")
    async with embedded(database, registry, lease=10):
        await in_status(connection, job_id, "running")
        await call(connection, "cancel_job", job_id=job_id)
        row = await ended(connection, job_id)

    assert (row["status"], row["result"], row["attempt"]) == ("cancelled", None, 1)


async def test_a_job_that_holds_on_after_its_cancellation_loses_its_process(
    connection: Connection, start_worker: StartProcess, diary: Diary
) -> None:
    worker = await start_worker(lease=2, cancel_grace=0.5)
    job_id = await insert(connection, "thread", payload={"seconds": 60})
    await diary.has(event="start")
    await call(connection, "cancel_job", job_id=job_id)
    row = await ended(connection, job_id)

    assert (row["status"], reasons(row)) == ("cancelled", ["cancelled"])
    await worker.logged("process died", exit=70)
    assert len(diary.entries(event="start")) == 1

"""Handlers for the worker processes of the tests: pgwake run --import worker.handlers.

They note what they do in the file that TEST_DIARY names: a line survives whatever
becomes of the process.
"""

import asyncio
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from pgwake import Job, job


def note(job: Job, event: str, **fields: Any) -> None:
    """Append a line to the diary."""
    entry = {
        "event": event,
        "job": job.id,
        "kind": job.kind,
        "attempt": job.attempt,
        "pid": os.getpid(),
        "at": time.clock_gettime(time.CLOCK_MONOTONIC),
        "reason": job.stop_reason,
        **fields,
    }
    with Path(os.environ["TEST_DIARY"]).open("a") as file:
        file.write(json.dumps(entry) + "\n")


@job("noop")
async def noop() -> None:
    """Do nothing."""


@job("echo")
async def echo(**payload: Any) -> dict[str, Any]:
    """Return the payload."""
    return payload


@job("note")
async def note_it(job: Job) -> None:
    """Note that it has run."""
    note(job, "start")


@job("fail")
async def fail(message: str) -> None:
    """Raise."""
    raise ValueError(message)


@job("nap")
async def nap(job: Job, seconds: float) -> None:
    """Sleep as an async handler should."""
    note(job, "start")
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        note(job, "cancelled")
        raise
    note(job, "end")


@job("hold")
async def hold(job: Job, until: Path) -> None:
    """Run until there is such a file."""
    note(job, "start")
    try:
        while not until.exists():  # noqa: ASYNC240, a look costs microseconds
            await asyncio.sleep(0.01)
    except asyncio.CancelledError:
        note(job, "cancelled")
        raise
    note(job, "end")


@job("block")
async def block(job: Job, seconds: float) -> None:
    """Block the loop, as an async handler must not."""
    note(job, "start")
    time.sleep(seconds)  # noqa: ASYNC251, that is the point
    note(job, "end")


@job("block briefly", timeout=0.5, max_attempts=2)
async def block_briefly(job: Job, seconds: float) -> None:
    """Block the loop past the time limit."""
    await block(job, seconds)


@job("thread")
def thread(job: Job, seconds: float) -> None:
    """Sleep in a thread, deaf to being told to stop."""
    note(job, "start")
    time.sleep(seconds)
    note(job, "end")


@job("spin")
async def spin(job: Job, seconds: float) -> None:
    """Keep the loop and the processor busy."""
    note(job, "start")
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        pass
    note(job, "end")


@job("spin in a thread")
def spin_in_a_thread(job: Job, seconds: float) -> None:
    """Keep the processor busy in a thread."""
    note(job, "start")
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        pass
    note(job, "end")


@job("switch interval")
def switch_interval() -> float:
    """Tell how long a thread may keep the interpreter."""
    return sys.getswitchinterval()


@job("thread briefly", timeout=0.5, max_attempts=2)
def thread_briefly(job: Job, seconds: float) -> None:
    """Sleep in a thread past the time limit."""
    thread(job, seconds)


@job("stubborn")
async def stubborn(job: Job, seconds: float) -> str:
    """Swallow every cancellation, and return as if all were well."""
    note(job, "start")
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        try:
            await asyncio.sleep(left)
        except BaseException:  # noqa: BLE001, that is the point
            note(job, "swallowed")
    note(job, "end")
    return "done"


@job("stubborn briefly", timeout=0.5, max_attempts=2)
async def stubborn_briefly(job: Job, seconds: float) -> str:
    """Swallow the cancellation past the time limit too."""
    return await stubborn(job, seconds)


@job("die")
async def die(job: Job) -> None:
    """Take the process down, each time."""
    note(job, "start")
    os.kill(os.getpid(), signal.SIGKILL)


@job("die once")
async def die_once(job: Job, mark: Path) -> None:
    """Take the process down, the first time."""
    note(job, "start")
    if not mark.exists():  # noqa: ASYNC240, a look costs microseconds
        mark.touch()  # noqa: ASYNC240
        os.kill(os.getpid(), signal.SIGKILL)
    note(job, "end")

"""Handlers that run in processes, for tests: --import worker.process_handlers."""

import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import structlog

from pgwake import ConfigurationError, Discard, Job, Retry, Snooze, job
from pgwake.errors import InvalidValueError
from support.worker.handlers import note

_kept: list[bytearray] = []


class UnpicklableError(Exception):
    """It holds what no process can hand to another."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.held = lambda: message


@job("apart", process=True)
def apart(job: Job, **payload: Any) -> dict[str, Any]:
    """Tell what it sees of its job, and where it runs."""
    return {
        "id": job.id,
        "kind": job.kind,
        "queue": job.queue,
        "attempt": job.attempt,
        "max_attempts": job.max_attempts,
        "created_at": job.created_at.isoformat(),
        "payload": job.payload,
        "arguments": payload,
        "should_stop": job.should_stop,
        "pid": os.getpid(),
    }


@job("pid", process=True)
def pid() -> int:
    """Tell where it runs."""
    return os.getpid()


@job("spin apart", process=True)
def spin_apart(job: Job, seconds: float) -> None:
    """Keep a processor busy."""
    note(job, "start")
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        pass
    note(job, "end")


@job("hold apart", process=True)
def hold_apart(job: Job, until: Path) -> None:
    """Run until there is such a file."""
    note(job, "start")
    while not until.exists():
        time.sleep(0.01)


@job("spin apart briefly", process=True, timeout=0.5, max_attempts=2)
def spin_apart_briefly(job: Job, seconds: float) -> None:
    """Keep a processor busy past the time limit."""
    spin_apart(job, seconds)


@job("sleep in C", process=True)
def sleep_in_c(job: Job, seconds: int) -> None:
    """Sleep with the interpreter's lock held, deaf to everything but SIGKILL."""
    note(job, "start")
    ctypes.PyDLL(None).sleep(seconds)


@job("start another", process=True)
def start_another(job: Job) -> None:
    """Wait for a process of its own."""
    with subprocess.Popen(["sleep", "60"]) as program:
        note(job, "started", other=program.pid)


@job("allocate", process=True)
def allocate(mebibytes: int) -> str:
    """Take memory, and let go of it."""
    return f"{len(bytearray(mebibytes << 20)) >> 20} MiB"


@job("leak", process=True)
def leak(mebibytes: int) -> int:
    """Take memory, and keep it."""
    _kept.append(bytearray(mebibytes << 20))
    return os.getpid()


@job("segfault", process=True)
def segfault() -> None:
    """Read what is nowhere."""
    ctypes.string_at(0)


@job("leave", process=True)
def leave(code: int) -> None:
    """End the process."""
    os._exit(code)


@job("die beside another", process=True)
def die_beside_another(job: Job) -> None:
    """Die, and leave a forked process that has all that this one had."""
    if (other := os.fork()) == 0:
        time.sleep(60)
        os._exit(0)
    note(job, "started", other=other)
    os.kill(os.getpid(), signal.SIGKILL)


@job("raise apart", process=True)
def raise_apart(what: str) -> None:
    match what:
        case "unpicklable":
            raise UnpicklableError("it holds a lambda")
        case "exit":
            sys.exit(3)
        case "invalid":
            raise InvalidValueError("not a value")
        case "snooze":
            raise Snooze(1000)
        case "retry":
            try:
                raise ConnectionError("429, slow down")  # noqa: TRY301
            except ConnectionError as error:
                raise Retry(1000) from error
        case "discard":
            raise Discard("withdrawn")


@job("return apart", process=True)
def return_apart(what: str) -> Any:
    match what:
        case "large":
            return "x" * 1_000_000
        case "nothing":
            return None
        case "object":
            return object()


@job("print", process=True)
def print_it(text: str) -> None:
    """Write to both streams, without a flush."""
    print(text)  # noqa: T201
    sys.stderr.write(text + "\n")


@job("log", process=True)
def log_it(text: str) -> None:
    """Leave a line in the log."""
    structlog.get_logger().info(text)


@job("signal itself", process=True)
def signal_itself() -> str:
    """Be told to end, as the whole group of a service may be."""
    os.kill(os.getpid(), signal.SIGTERM)
    os.kill(os.getpid(), signal.SIGINT)
    return "went on"


@job("steps apart", process=True, backoff_base=0.01)
def steps_apart(job: Job) -> Any:
    """Step, sleep and wait, from this process."""
    first = job.step_sync("first", os.getpid)
    job.sleep_sync("a while", seconds=0.05)
    payload = job.wait_for_sync("apart:go", timeout=600)
    try:
        job.step_sync("first", os.getpid)
    except ConfigurationError as error:
        return [first, payload, str(error)]
    return None

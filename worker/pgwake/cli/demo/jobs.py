"""The jobs of `pgwake demo`: what its worker imports."""

import hashlib
import os
import signal
import sysconfig
import time
from contextlib import suppress
from pathlib import Path

import structlog

from pgwake.jobs.job import Job
from pgwake.jobs.registry import job

QUEUE = "demo"
STDLIB = Path(sysconfig.get_path("stdlib"))

log = structlog.get_logger()


def stdlib_digests() -> dict[str, str]:
    """Return the sha256 of each .py file of the running Python's library, by path."""
    digests = {}
    for path in sorted(STDLIB.rglob("*.py")):
        if not {"site-packages", "dist-packages"}.intersection(path.parts):
            with suppress(OSError, UnicodeError):  # dangling links, undecodable names
                name = path.relative_to(STDLIB).as_posix()
                name.encode()
                digests[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return digests


@job("demo_file", queue=QUEUE)
def demo_file(path: str) -> dict[str, object]:
    """Read a file of the standard library, in a thread since it blocks."""
    source = (STDLIB / path).read_bytes()
    return {
        "lines": len(source.splitlines()),
        "sha256": hashlib.sha256(source).hexdigest(),
    }


@job("demo_ping", queue=QUEUE)
async def demo_ping(sent_at: float) -> dict[str, float]:
    """Tell how long ago it was sent, on the monotonic clock that the sender shares."""
    return {"ms": (time.monotonic() - sent_at) * 1000}


@job("demo_flaky", queue=QUEUE)
async def demo_flaky(job: Job) -> dict[str, int]:
    """Fail twice, then succeed."""
    if job.attempt <= 2:
        raise RuntimeError(f"attempt {job.attempt} fails on purpose")
    return {"attempt": job.attempt}


@job("demo_doomed", queue=QUEUE)
async def demo_doomed() -> None:
    """Never succeed."""
    raise RuntimeError("this one never succeeds")


@job("demo_killer", queue=QUEUE)
async def demo_killer(job: Job) -> dict[str, int]:
    """Kill its process the first time, and what else runs there with it."""
    if job.crash_count == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return {"crash_count": job.crash_count}


@job("demo_delayed", queue=QUEUE)
async def demo_delayed() -> None:
    """Do nothing, at the right time."""


@job("demo_cancelled", queue=QUEUE)
async def demo_cancelled() -> None:
    """Never be called: the demo cancels it before it is due."""


@job("hello", queue=QUEUE)
async def hello(name: str) -> dict[str, str]:
    """Greet whoever inserts a job by hand."""
    log.info("hello", name=name)
    return {"greeting": f"hello {name}"}

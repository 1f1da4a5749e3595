"""What the workers under chaos run; each execution leaves a line in a file."""

import asyncio
import os
import time

from pgwake import Job, job

_log = os.open(os.environ["PGWAKE_CHAOS_LOG"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)


@job("chaos", queue="chaos")
async def chaos(seconds: float, *, job: Job) -> None:
    """Take that long. The line outlives a kill: it is in the kernel's hands by then."""
    os.write(_log, f"{job.id} {os.getpid()} {time.time():.6f}\n".encode())
    await asyncio.sleep(seconds)


@job("failover", queue="failover")
async def failover(number: int, seconds: float, *, job: Job) -> None:
    """The same, by the producer's number: ids may repeat after a failover."""
    os.write(_log, f"{number} {job.id} {os.getpid()} {time.time():.6f}\n".encode())
    await asyncio.sleep(seconds)

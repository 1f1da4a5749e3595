"""Handlers that set signals for themselves: --import support.worker.rude_handlers."""

import asyncio
import signal

from pgwake import Job, job
from support.worker.handlers import note


@job("override SIGTERM")
async def override_sigterm(job: Job) -> None:
    """Hear the signal that the worker waits for, and run until the stop."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    note(job, "start")
    await asyncio.Event().wait()

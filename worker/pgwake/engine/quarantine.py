"""Quarantine: jobs that crashed twice or more run one at a time."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from time import monotonic

import asyncpg
import structlog

from pgwake.database.session import Session
from pgwake.database.statements.claim import seconds_to_suspect
from pgwake.engine.claimer import Claimer
from pgwake.engine.held_jobs import HeldJobs
from pgwake.sleep import pause

log = structlog.get_logger()


# A suspect that is due for so long runs though the process is never idle.
PATIENCE_SECONDS = 60.0


class Quarantine:
    """Runs suspects one at a time; no other job waits for one.

    A supervised worker has a process for them. In an embedded one a suspect begins when
    nothing else runs, and the claims go on beside it.

    Args:
        claimers: One for each queue.
        session: Where to look for suspects.
        held_jobs: The jobs that the process holds.
        claim_lock: Held while one is claimed.
        poll_interval: Seconds between looks.
    """

    def __init__(
        self,
        claimers: Sequence[Claimer],
        session: Session,
        *,
        held_jobs: HeldJobs,
        claim_lock: asyncio.Lock,
        poll_interval: float,
    ) -> None:
        self._claimers = claimers
        self._session = session
        self._held_jobs = held_jobs
        self._claim_lock = claim_lock
        self._poll_interval = poll_interval
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """Let run() and run_due() end."""
        self._stopping.set()

    async def run(self) -> None:
        """Look for suspects until stopped: the way of a worker without a supervisor."""
        queues = [claimer.ready_jobs.queue for claimer in self._claimers]
        while not self._stopping.is_set():
            wait = self._poll_interval
            with suppress(asyncpg.PostgresError):
                seconds = await self._session.call(
                    lambda connection: seconds_to_suspect(connection, queues)
                )
                if seconds is not None and seconds <= 0:
                    await self._until_idle(PATIENCE_SECONDS + seconds)
                    if await self._run_next():
                        continue
                elif seconds is not None:
                    wait = min(wait, seconds)
            await pause(self._stopping, wait)

    async def run_due(self) -> None:
        """Run every suspect that is due."""
        while await self._run_next():
            pass

    async def _run_next(self) -> bool:
        """Run one suspect to its end, or to the stop; whether there was one."""
        for claimer in self._claimers:
            async with self._claim_lock:
                job = None if self._stopping.is_set() else await claimer.claim_suspect()
            if job is not None:
                while job in self._held_jobs and not self._stopping.is_set():
                    await asyncio.sleep(0.01)
                return True
        return False

    async def _until_idle(self, seconds: float) -> None:
        deadline = monotonic() + seconds
        while (
            len(self._held_jobs)
            and monotonic() < deadline
            and not self._stopping.is_set()
        ):
            await asyncio.sleep(0.01)

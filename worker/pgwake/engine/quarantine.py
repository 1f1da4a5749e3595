"""Quarantine: jobs that crashed twice or more run alone, so that they harm nobody."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress

import asyncpg
import structlog

from pgwake.database.session import Session
from pgwake.database.statements.claim import seconds_to_suspect
from pgwake.engine.claimer import Claimer
from pgwake.pause import pause

log = structlog.get_logger()


class Quarantine:
    """Runs suspects one at a time, while nothing else runs in this process.

    Args:
        claimers: One for each queue.
        session: Where to look for suspects.
        claim_lock: Held while a suspect runs, which keeps the claimers from claiming.
        poll_interval: Seconds between looks.
    """

    def __init__(
        self,
        claimers: Sequence[Claimer],
        session: Session,
        *,
        claim_lock: asyncio.Lock,
        poll_interval: float,
    ) -> None:
        self._claimers = claimers
        self._session = session
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
                    await self.run_due()
                    continue
                wait = min(wait, seconds or wait)
            await pause(self._stopping, wait)

    async def run_due(self) -> None:
        """Run every suspect that is due, each alone."""
        async with self._claim_lock:
            await self._until_idle()
            for claimer in self._claimers:
                while not self._stopping.is_set() and await claimer.claim_suspect():
                    await self._until_idle()

    async def _until_idle(self) -> None:
        while (
            any(claimer.ready_jobs.held for claimer in self._claimers)
            and not self._stopping.is_set()
        ):
            await asyncio.sleep(0.01)

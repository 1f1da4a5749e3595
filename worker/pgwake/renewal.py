"""Renewal: keeps the leases of the jobs that this process holds."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Sequence
from datetime import timedelta
from time import monotonic

import asyncpg
import structlog

from pgwake import queue
from pgwake.connection import Session, describe
from pgwake.job import Job, StopReason

log = structlog.get_logger()

LOOK_SECONDS = 0.1
MAX_INTERVAL_SECONDS = 10.0
MAX_BATCH = 1000
REFUSED_SECONDS = 1.0  # to wait for whoever has taken a right away


def renewal_interval(lease_seconds: float) -> float:
    """Seconds after which a lease is renewed: a quarter of it, at most 10."""
    return min(lease_seconds / 4, MAX_INTERVAL_SECONDS)


class Renewal:
    """Renews exactly the (id, lease_id) pairs that the process holds.

    So a job that nobody holds, the answer to its claim lost, runs out and is swept.
    Each lease is renewed by its own length: a queue's shorter lease, set meanwhile,
    would run out before the next renewal.

    Args:
        session: Where to renew.
        holdings: The jobs that the process holds.
        tell: Called with a job that is to stop, and why.
    """

    def __init__(
        self,
        session: Session,
        holdings: set[Job],
        tell: Callable[[Job, StopReason], None],
    ) -> None:
        self._session = session
        self._holdings = holdings
        self._tell = tell

    async def run(self) -> None:
        """Renew for ever."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            for lease_seconds, jobs in self._due().items():
                lease = timedelta(seconds=lease_seconds)
                for start in range(0, len(jobs), MAX_BATCH):
                    await self._renew(jobs[start : start + MAX_BATCH], lease)

    def _due(self) -> dict[float, list[Job]]:
        """Return the jobs whose turn it is, in order of id, by the length of lease."""
        now = monotonic()
        due = defaultdict(list)
        for job in sorted(list(self._holdings), key=lambda job: job.id):  # noqa: C414
            age = now - job.renewed_at
            if (
                age >= renewal_interval(job.lease_seconds)
                and job.stop_reason != "lease_lost"
            ):
                due[job.lease_seconds].append(job)
        return due

    async def _renew(self, jobs: Sequence[Job], lease: timedelta) -> None:
        asked_at = monotonic()
        try:
            outcomes = await self._session.call(
                lambda connection: queue.extend_leases(
                    connection,
                    [job.id for job in jobs],
                    [job.lease_id for job in jobs],
                    lease,
                )
            )
        except asyncpg.PostgresError as error:
            log.error("renewal refused", error=describe(error), jobs=len(jobs))
            await asyncio.sleep(REFUSED_SECONDS)
            return
        for job, outcome in zip(jobs, outcomes, strict=True):
            job.renewed_at = asked_at
            if outcome == "cancel_requested":
                self._tell(job, "cancelled")
            elif outcome != "extended" and job in self._holdings:
                self._tell(job, "lease_lost")

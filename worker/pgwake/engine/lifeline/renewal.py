"""Renewal: keeps the leases of the jobs that this process holds."""

import asyncio
import json
from collections import defaultdict
from collections.abc import Callable, Sequence
from datetime import timedelta
from time import monotonic

import asyncpg
import structlog

from pgwake.database.connection import describe
from pgwake.database.session import Session
from pgwake.database.statements.finish import extend_leases, lease_outcomes
from pgwake.engine.held_jobs import HeldJobs
from pgwake.heartbeat import Heartbeat
from pgwake.jobs.attempt import Attempt
from pgwake.jobs.service import StopReason
from pgwake.observe.metrics import Metrics
from pgwake.seldom import Seldom
from pgwake.sleep import pause

log = structlog.get_logger()

LOOK_SECONDS = 0.1
MAX_INTERVAL_SECONDS = 10.0
MAX_BATCH = 1000
MAX_ASKED = 10_000
ASKED_SECONDS = 5.0  # for which a job may still arrive whose claim was under way
REFUSED_SECONDS = 1.0  # to wait for whoever has taken a right away


def renewal_interval(lease_seconds: float) -> float:
    """Seconds after which a lease is renewed: a quarter of it, at most 10."""
    return min(lease_seconds / 4, MAX_INTERVAL_SECONDS)


class Renewal:
    """Renews exactly the (id, lease_id) pairs that the process holds.

    So a job that nobody holds runs out and is swept, if UnansweredClaims has not found
    it. Each lease is renewed by its own length: a queue's shorter lease, set meanwhile,
    would run out before the next renewal.

    A job whose cancellation is asked for is renewed at once: the answer says whether
    that is true, which a notification, sent by whoever may, does not.

    Args:
        session: Where to renew.
        worker: The worker's name, as in claimed_by.
        held_jobs: The jobs that the process holds.
        tell: Called with a job that is to stop, and why.
        metrics: Where notifications are counted that can't be understood.
    """

    def __init__(
        self,
        session: Session,
        worker: str,
        held_jobs: HeldJobs,
        tell: Callable[[Attempt, StopReason], None],
        metrics: Metrics,
    ) -> None:
        self._session = session
        self._worker = worker
        self._held_jobs = held_jobs
        self._tell = tell
        self._metrics = metrics
        self._bad = Seldom()
        self.heartbeat = Heartbeat("the renewal of leases", session.timeout)
        self._asked: dict[int, float] = {}  # ids to look at, until when
        self._more = asyncio.Event()

    def look(self, news: str) -> None:
        """Renew at once those of our jobs that a notification of cancel_job names."""
        try:
            heard = json.loads(news)
            if heard["worker"] != self._worker:
                return
            ids = [int(job_id) for job_id in heard["jobs"]]
        except (ValueError, TypeError, LookupError, ArithmeticError, RecursionError):
            self._metrics.bad_notifications.add(())
            if count := self._bad.count():
                log.warning(
                    "cancellations not understood", count=count, payload=news[:200]
                )
            return
        until = monotonic() + ASKED_SECONDS
        # Beyond that the next renewal finds them: anybody may send any number of ids.
        ids = ids[: max(MAX_ASKED - len(self._asked), 0)]
        self._asked |= dict.fromkeys(ids, until)
        self._more.set()

    async def run(self) -> None:
        """Renew for ever."""
        self.heartbeat.start()
        while True:
            self.heartbeat.beat()
            await self._session.open()  # before it is needed, and there is no room
            await pause(self._more, LOOK_SECONDS)
            self._more.clear()
            for lease_seconds, jobs in self._due().items():
                lease = timedelta(seconds=lease_seconds)
                for start in range(0, len(jobs), MAX_BATCH):
                    await self._renew(jobs[start : start + MAX_BATCH], lease)

    def _due(self) -> dict[float, list[Attempt]]:
        """Return the jobs whose turn it is, in order of id, by the length of lease."""
        now = monotonic()
        due = defaultdict(list)
        for job in sorted(self._held_jobs, key=lambda job: job.id):
            if job.stop_reason == "lease_lost":
                continue
            is_asked = self._asked.pop(job.id, None) is not None
            if is_asked or now - job.renewed_at >= renewal_interval(job.lease_seconds):
                due[job.lease_seconds].append(job)
        # What is not held: it has ended, or the answer to its claim is on its way.
        self._asked = {i: until for i, until in self._asked.items() if until > now}
        return due

    async def _renew(self, jobs: Sequence[Attempt], lease: timedelta) -> None:
        asked_at = monotonic()
        try:
            outcomes = await self._session.call(
                lambda connection: extend_leases(
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
        lost = []
        for job, outcome in zip(jobs, outcomes, strict=True):
            job.renewed_at = asked_at
            if outcome == "cancel_requested":
                self._tell(job, "cancelled")
            elif outcome != "extended":
                lost.append(job)
        if lost:
            await self._tell_lost(lost)

    async def _tell_lost(self, jobs: Sequence[Attempt]) -> None:
        """Stop them, but for those that their handlers have completed themselves."""
        try:
            outcomes = await self._session.call(
                lambda connection: lease_outcomes(
                    connection, [job.id for job in jobs], [job.lease_id for job in jobs]
                )
            )
        except asyncpg.PostgresError as error:
            log.error("renewal refused", error=describe(error), jobs=len(jobs))
            return  # until the next renewal
        for job, outcome in zip(jobs, outcomes, strict=True):
            if outcome != "completed" and job in self._held_jobs:
                self._tell(job, "lease_lost")

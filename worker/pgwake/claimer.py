"""Claims: fills a queue's slots, and sleeps until there is something to claim."""

import asyncio
import random
from datetime import timedelta
from time import monotonic
from typing import Literal

import asyncpg
import structlog

from pgwake import queue
from pgwake.connection import Session, describe
from pgwake.feed import Feed
from pgwake.job import Job
from pgwake.metrics import Metrics

log = structlog.get_logger()

Cause = Literal["notify", "timer", "poll"]

MAX_BATCH = 500
# How far ahead of the slots a claim may reach, in seconds of work at the rate just
# measured: several round trips of a fast queue, nothing at all of a slow one.
PREFETCH_SECONDS = 0.025
# After this long without a free slot, jobs that were claimed ahead are given back.
HOARD_SECONDS = 1.0


class Claimer:
    """The claim loop of one queue.

    Args:
        feed: Where claimed jobs go.
        session: A session for claims; queues may share one.
        worker: The name to claim under.
        lease: How long a claim holds; None: the queue's own.
        poll_interval: Seconds between looks without having been woken.
        holdings: The jobs that the process holds.
        metrics: Where to count.
        gate: Held while claiming; whoever holds it keeps all queues from claiming.
    """

    def __init__(
        self,
        feed: Feed,
        session: Session,
        *,
        worker: str,
        lease: float | None,
        poll_interval: float,
        holdings: set[Job],
        metrics: Metrics,
        gate: asyncio.Lock,
    ) -> None:
        self.feed = feed
        self._session = session
        self._worker = worker
        self._lease = None if lease is None else timedelta(seconds=lease)
        self._poll_interval = poll_interval
        self._holdings = holdings
        self._metrics = metrics
        self._gate = gate
        self._woken = asyncio.Event()
        self._claimed_at = monotonic()
        self._finished = 0
        self._stopping = False

    def wake(self) -> None:
        """Look at the queue now; on the loop's thread."""
        self._woken.set()

    def stop(self) -> None:
        """Let run() end, with no claim cut off: what one took would be nobody's."""
        self._stopping = True
        self._woken.set()
        self.feed.room.set()

    async def run(self) -> None:
        """Claim until stopped."""
        while True:
            count = await self._room()
            if self._stopping:
                return
            self._woken.clear()  # before the look, so that no wake-up falls between
            async with self._gate:
                claim = await self._claim(count)
            if claim is None:
                await self._sleep(None)
            elif len(claim.jobs) < count:
                seconds = claim.seconds_to_next
                # Something due that could not be had is somebody else's, for now.
                floor = 0.0 if claim.jobs else 0.05
                await self._sleep(None if seconds is None else max(seconds, floor))

    async def claim_suspect(self) -> bool:
        """Claim one job that crashed twice or more; whether there was one due."""
        claim = await self._claim(1, suspects=True)
        return claim is not None and bool(claim.jobs)

    async def _claim(self, count: int, *, suspects: bool = False) -> queue.Claim | None:
        """Claim, and hand over to the slots; None if the database refuses."""
        started = monotonic()
        try:
            claim = await self._session.call(
                lambda connection: queue.claim_batch(
                    connection,
                    self.feed.queue,
                    count,
                    self._worker,
                    self._lease,
                    suspects=suspects,
                )
            )
        except asyncpg.PostgresError as error:
            log.error(
                "claim refused",
                queue=self.feed.queue,
                error=describe(error),
                hint=error.hint,
            )
            return None
        self._metrics.claim_seconds.observe(monotonic() - started)
        jobs = Job.from_claim(claim, started)
        self._holdings.update(jobs)
        self._metrics.claimed(jobs)
        self.feed.put(jobs)
        return claim

    async def _room(self) -> int:
        """Wait until a claim is worth it; how many jobs to ask for."""
        feed = self.feed
        while True:
            ahead = self._prefetch()
            room = feed.slots + ahead - feed.held
            if self._stopping or (room > 0 and len(feed.ready) <= ahead // 2):
                self._claimed_at, self._finished = monotonic(), feed.finished
                return min(room, MAX_BATCH)
            feed.low_water = ahead // 2
            feed.room.clear()
            try:
                async with asyncio.timeout(HOARD_SECONDS):
                    await feed.room.wait()
            except TimeoutError:
                await self._give_back()

    def _prefetch(self) -> int:
        finished = self.feed.finished - self._finished
        rate = finished / max(monotonic() - self._claimed_at, 0.001)
        return min(int(rate * PREFETCH_SECONDS), MAX_BATCH)

    async def _give_back(self) -> None:
        if monotonic() - self.feed.finished_at < HOARD_SECONDS:
            return
        if jobs := self.feed.take_back():
            await self._session.call(
                lambda connection: queue.release_jobs(
                    connection,
                    [job.id for job in jobs],
                    [job.lease_id for job in jobs],
                    "unstarted",
                )
            )
            self._holdings.difference_update(jobs)

    async def _sleep(self, seconds_to_next: float | None) -> None:
        """Sleep until woken, until the next job is due, or until the next poll."""
        poll = self._poll_interval * random.uniform(0.9, 1.1)  # noqa: S311
        cause: Cause = "notify"
        timer = seconds_to_next is not None and seconds_to_next < poll
        try:
            async with asyncio.timeout(seconds_to_next if timer else poll):
                await self._woken.wait()
        except TimeoutError:
            cause = "timer" if timer else "poll"
        self._metrics.woken(self.feed.queue, cause)

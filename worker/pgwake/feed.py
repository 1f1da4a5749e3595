"""A queue's jobs on their way into its slots."""

import asyncio
from collections import deque
from collections.abc import Iterable
from time import monotonic

from pgwake.job import Job


class Feed:
    """What stands between the claims of one queue and its slots.

    Slots take jobs from a deque: no task, stream or queue object a job. The lifeline's
    thread may take unstarted jobs away, so nothing here trusts a length just read.

    Args:
        queue: The queue's name.
        slots: How many jobs run at once.
    """

    def __init__(self, queue: str, slots: int) -> None:
        self.queue = queue
        self.slots = slots
        self.busy = 0
        self.finished = 0
        self.finished_at = monotonic()
        self.low_water = 0
        self.has_stranger = False  # a job whose kind nobody here handles was given back
        self.ready: deque[Job] = deque()
        self.room = asyncio.Event()
        self.room.set()
        self._idle: deque[asyncio.Future[None]] = deque()
        self._closed = False

    @property
    def held(self) -> int:
        """How many jobs are ready or running."""
        return self.busy + len(self.ready)

    def put(self, jobs: Iterable[Job]) -> None:
        """Hand over claimed jobs; those that crashed before go first."""
        for job in jobs:
            if job.crash_count:
                self.ready.appendleft(job)
            else:
                self.ready.append(job)
        for _ in range(min(len(self._idle), len(self.ready))):
            self._wake_one()

    async def take(self) -> Job | None:
        """Wait for a job; None when the feed is closed. Release the slot after it."""
        while True:
            try:
                job = self.ready.popleft()
            except IndexError:
                if self._closed:
                    return None
                self.room.set()
                waiter = asyncio.get_running_loop().create_future()
                self._idle.append(waiter)
                await waiter
                continue
            self.busy += 1
            if len(self.ready) <= self.low_water:
                self.room.set()
            return job

    def release_slot(self) -> None:
        """Say that the job that was taken has left its slot."""
        self.busy -= 1
        self.finished += 1
        self.finished_at = monotonic()

    def take_back(self) -> list[Job]:
        """Take away every job that no slot has begun; from any thread."""
        jobs: list[Job] = []
        while True:
            try:
                jobs.append(self.ready.pop())
            except IndexError:
                return jobs

    def close(self) -> None:
        """Let the slots end once they have nothing to take."""
        self._closed = True
        while self._idle:
            self._wake_one()

    def _wake_one(self) -> None:
        while self._idle:
            waiter = self._idle.popleft()
            if not waiter.done():  # its slot may be gone
                waiter.set_result(None)
                return

"""A queue's jobs on their way into its slots."""

import asyncio
from collections import deque
from collections.abc import Iterable
from time import monotonic

from pgwake.jobs.job import Job
from pgwake.pause import pause


class Gathering:
    """The jobs that a batch has so far."""

    def __init__(self, first: Job, size: int) -> None:
        self._size = size
        self._jobs = deque([first])
        self.is_over = asyncio.Event()

    @property
    def wanted(self) -> int:
        """How many more it takes."""
        return max(self._size - len(self._jobs), 0)

    def add(self, job: Job) -> bool:
        """Take a job, if there is room."""
        if self.is_over.is_set():
            return False
        self._jobs.append(job)
        if not self.wanted:
            self.is_over.set()
        return True

    def take(self) -> list[Job]:
        """Take away what there is; from any thread."""
        return _emptied(self._jobs)


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
        self._gatherings: dict[str, Gathering] = {}  # by kind
        self._closed = False

    @property
    def held(self) -> int:
        """How many jobs are ready or running."""
        return self.busy + len(self.ready)

    @property
    def wanted(self) -> int:
        """How many jobs batches take beyond those that slots do."""
        return sum(gathering.wanted for gathering in self._gatherings.values())

    def put(self, jobs: Iterable[Job]) -> None:
        """Hand over claimed jobs; those that crashed before go first."""
        if self._gatherings:
            jobs = [job for job in jobs if not self._gather(job)]
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

    async def take_more(self, first: Job, size: int, seconds: float) -> list[Job]:
        """Take so many jobs of a kind at most: the first, what is ready, what comes.

        Empty when all were taken back. One that crashed before stays alone, so that
        nobody is dragged along the next time.

        Args:
            first: The job that has been taken.
            size: How many, with that one.
            seconds: How long to wait for more.
        """
        if first.crash_count:
            return [first]
        gathering = self._gatherings[first.kind] = Gathering(first, size)
        try:
            for job in _emptied(self.ready):
                if not self._gather(job):
                    self.ready.append(job)
            if gathering.wanted:
                self.room.set()
                await pause(gathering.is_over, seconds)
        finally:
            # Once it is full, another slot may have begun the next one.
            if self._gatherings.get(first.kind) is gathering:
                del self._gatherings[first.kind]
        jobs = gathering.take()
        self.finished += max(len(jobs) - 1, 0)
        return jobs

    def _gather(self, job: Job) -> bool:
        """Put a job into the batch of its kind that waits for more, if there is one."""
        gathering = self._gatherings.get(job.kind)
        return gathering is not None and not job.crash_count and gathering.add(job)

    def release_slot(self) -> None:
        """Say that the job that was taken has left its slot."""
        self.busy -= 1
        self.finished += 1
        self.finished_at = monotonic()

    def take_back(self, *, gathered: bool = True) -> list[Job]:
        """Take away every job that no slot has begun; from any thread.

        Args:
            gathered: Also those that a batch has so far.
        """
        jobs = _emptied(self.ready)
        if gathered:
            for gathering in list(self._gatherings.values()):
                jobs += gathering.take()
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


def _emptied(jobs: deque[Job]) -> list[Job]:
    taken: list[Job] = []
    while True:
        try:
            taken.append(jobs.popleft())
        except IndexError:
            return taken

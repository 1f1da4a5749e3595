"""A queue's jobs on their way into its slots."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from time import monotonic

from pgwake.jobs.attempt import Attempt
from pgwake.sleep import pause

MAX_UNKNOWN_KINDS = 1000  # that a claim leaves out; jobs of further ones are given back


class OpenBatch:
    """The jobs that a batch has so far."""

    def __init__(self, first: Attempt, size: int) -> None:
        self._size = size
        self._jobs = deque([first])
        self.is_over = asyncio.Event()

    @property
    def wanted(self) -> int:
        """How many more it takes."""
        return max(self._size - len(self._jobs), 0)

    def add(self, job: Attempt) -> bool:
        """Take a job, if there is room."""
        if self.is_over.is_set():
            return False
        self._jobs.append(job)
        if not self.wanted:
            self.is_over.set()
        return True

    def take(self) -> list[Attempt]:
        """Take away what there is; from any thread."""
        return _emptied(self._jobs)


class ReadyJobs:
    """What stands between the claims of one queue and its slots.

    Slots take jobs from a deque: no task, stream or queue object a job. The lifeline's
    thread may take unstarted jobs away, so nothing here trusts a length just read.

    Args:
        queue: The queue's name.
        slots: How many jobs run at once.

    Attributes:
        open_slot: Starts a slot: when it is needed, since most queues of a process that
            has a thousand never need more than one. The runner sets it.
    """

    open_slot: Callable[[], None]

    def __init__(self, queue: str, slots: int) -> None:
        self.queue = queue
        self.slots = slots
        self.busy = 0
        self.finished = 0
        self.finished_at = monotonic()
        self.low_water = 0
        # Kinds that nobody here handles, and whether one was given back just now.
        self.unknown_kinds: set[str] = set()
        self.saw_unknown_kind = False
        self.jobs: deque[Attempt] = deque()
        self.room = asyncio.Event()
        self.room.set()
        self._opened = 0  # slots
        self._idle: deque[asyncio.Future[None]] = deque()
        self._open_batches: dict[str, OpenBatch] = {}  # by kind
        self._closed = False

    @property
    def held(self) -> int:
        """How many jobs are ready or running."""
        return self.busy + len(self.jobs)

    @property
    def wanted(self) -> int:
        """How many jobs batches take beyond those that slots do."""
        return sum(batch.wanted for batch in self._open_batches.values())

    def note_unknown_kind(self, kind: str) -> None:
        """Have no more jobs of a kind claimed, and others woken for this one."""
        self.saw_unknown_kind = True
        if len(self.unknown_kinds) < MAX_UNKNOWN_KINDS:
            self.unknown_kinds.add(kind)

    def put(self, jobs: Iterable[Attempt]) -> None:
        """Hand over claimed jobs; those that crashed before go first."""
        if self._open_batches:
            jobs = [job for job in jobs if not self._add_to_open_batch(job)]
        for job in jobs:
            if job.crash_count:
                self.jobs.appendleft(job)
            else:
                self.jobs.append(job)
        for _ in range(len(self.jobs)):
            if self._wake_one():
                continue
            if self._opened == self.slots:
                break
            self._opened += 1
            self.open_slot()

    def take(self) -> Attempt | None:
        """Take a job, if one is ready. Release the slot after it."""
        try:
            job = self.jobs.popleft()
        except IndexError:
            return None
        self.busy += 1
        if len(self.jobs) <= self.low_water:
            self.room.set()
        return job

    async def next(self) -> Attempt | None:
        """Wait for a job, and take it; None when it is closed."""
        while (job := self.take()) is None and not self._closed:
            self.room.set()
            waiter = asyncio.get_running_loop().create_future()
            self._idle.append(waiter)
            await waiter
        return job

    async def take_more(
        self, first: Attempt, size: int, seconds: float
    ) -> list[Attempt]:
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
        batch = self._open_batches[first.kind] = OpenBatch(first, size)
        try:
            for job in _emptied(self.jobs):
                if not self._add_to_open_batch(job):
                    self.jobs.append(job)
            if batch.wanted:
                self.room.set()
                await pause(batch.is_over, seconds)
        finally:
            # Once it is full, another slot may have begun the next one.
            if self._open_batches.get(first.kind) is batch:
                del self._open_batches[first.kind]
        jobs = batch.take()
        self.finished += max(len(jobs) - 1, 0)
        return jobs

    def _add_to_open_batch(self, job: Attempt) -> bool:
        """Put a job into the batch of its kind that waits for more, if there is one."""
        batch = self._open_batches.get(job.kind)
        return batch is not None and not job.crash_count and batch.add(job)

    def release_slot(self) -> None:
        """Say that the job that was taken has left its slot."""
        self.busy -= 1
        self.finished += 1
        self.finished_at = monotonic()

    def take_back(self, *, open_batches: bool = True) -> list[Attempt]:
        """Take away every job that no slot has begun; from any thread.

        Args:
            open_batches: Also those that a batch has so far.
        """
        jobs = _emptied(self.jobs)
        if open_batches:
            for batch in list(self._open_batches.values()):
                jobs += batch.take()
        return jobs

    def close(self) -> None:
        """Let the slots end once they have nothing to take."""
        self._closed = True
        while self._idle:
            self._wake_one()

    def _wake_one(self) -> bool:
        """Wake a slot that waits for a job, if there is one."""
        while self._idle:
            waiter = self._idle.popleft()
            if not waiter.done():  # its slot may be gone
                waiter.set_result(None)
                return True
        return False


def _emptied(jobs: deque[Attempt]) -> list[Attempt]:
    taken: list[Attempt] = []
    while True:
        try:
            taken.append(jobs.popleft())
        except IndexError:
            return taken

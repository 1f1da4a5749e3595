"""The time limits of the jobs that run."""

import asyncio
from collections.abc import Collection
from math import inf
from time import monotonic

from pgwake.jobs.attempt import Attempt


class Deadlines:
    """Stops what is late: one timer for all that run.

    A timer a job would cost more than the rest of a short one.

    Args:
        running: The attempts that run.
    """

    def __init__(self, running: Collection[Attempt]) -> None:
        self._running = running
        self._timer: asyncio.TimerHandle | None = None
        self._at = inf

    def add(self, deadline: float) -> None:
        """Look for late jobs no later than then, on the monotonic clock."""
        if deadline >= self._at:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._at = deadline
        self._timer = asyncio.get_running_loop().call_later(
            deadline - monotonic(), self._stop_late
        )

    def _stop_late(self) -> None:
        self._at = inf
        now = monotonic()
        for job in list(self._running):
            if job.deadline is None or job.should_stop:
                continue
            if job.deadline <= now:
                job.stop("timeout")
            else:
                self.add(job.deadline)

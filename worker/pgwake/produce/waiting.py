"""Waiting for the end of a job: what a look shows, and when to look again."""

from dataclasses import dataclass
from math import isnan
from time import monotonic
from typing import Any, Literal

from pgwake.database.statements import parsed, produce
from pgwake.errors import InvalidArgumentError, WaitTimeoutError

ENDED = ("completed", "failed", "cancelled")
POLL_SECONDS = 5.0  # while news is heard
MAX_POLL_SECONDS = 1.0  # where none is heard; begins with a fiftieth of it


@dataclass(frozen=True, slots=True)
class Ended:
    """How a job ended.

    Attributes:
        id: The job's id.
        queue: Its queue.
        kind: Its kind.
        status: completed, failed or cancelled.
        result: What a completed one has as its result.
        errors: The last failed attempts, oldest first: attempt, at, worker, reason and
            message of each.
    """

    id: int
    queue: str
    kind: str
    status: Literal["completed", "failed", "cancelled"]
    result: Any
    errors: list[dict[str, Any]]


class Wait:
    """One wait: what a look has shown, when to look again, and when to give up.

    Args:
        job_id: The job.
        timeout: Seconds to wait at most; None: for ever.

    Raises:
        InvalidArgumentError: The time is no number.
    """

    def __init__(self, job_id: int, timeout: float | None) -> None:
        if timeout is not None and isnan(timeout):
            raise InvalidArgumentError("timeout is nan: give seconds, or None")
        self.question = produce.look(job_id)
        self._job_id = job_id
        self._timeout = timeout
        self._deadline = None if timeout is None else monotonic() + timeout
        self._seconds = MAX_POLL_SECONDS / 50
        self._snapshot_at: str | None = None

    def ended(self, look: produce.JobSnapshot) -> Ended | None:
        """Return how the job has ended; None if it has not yet.

        Raises:
            InvalidArgumentError: Who looks can't ever see its end.
            UnreadableValueError: It has completed, with a result that Python does not
                read.
        """
        job = look.job
        if job["status"] in ENDED:
            result = parsed(job["result"])
            return Ended(**{**job, "result": result, "errors": job["errors"] or []})
        if look.is_own:
            raise InvalidArgumentError(
                f"job {self._job_id} was added or changed by this very transaction: no"
                " worker sees that before the commit, so wait after it"
            )
        if look.snapshot_at is not None and look.snapshot_at == self._snapshot_at:
            raise InvalidArgumentError(
                f"job {self._job_id}: this transaction sees the database as it was when"
                " it began (isolation above read committed), so wait outside of it"
            )
        self._snapshot_at = look.snapshot_at
        return None

    def seconds(self, *, hears: bool = False) -> float:
        """Seconds until the next look.

        Raises:
            WaitTimeoutError: The time is up.
        """
        seconds = POLL_SECONDS if hears else self._seconds
        self._seconds = min(self._seconds * 1.5, MAX_POLL_SECONDS)
        if self._deadline is None:
            return seconds
        left = self._deadline - monotonic()
        if left <= 0:
            raise WaitTimeoutError(
                f"job {self._job_id} has not ended within {self._timeout} s"
            )
        return min(seconds, left)

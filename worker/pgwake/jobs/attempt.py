"""The attempt at a job: what the engine does with what it has claimed."""

from time import monotonic
from typing import TYPE_CHECKING

from pgwake.database.statements.claim import Claim
from pgwake.jobs.job import Job
from pgwake.jobs.service import Completion, Service, Stoppable, StopReason
from pgwake.jobs.steps import Steps, Suspension

if TYPE_CHECKING:
    import asyncpg

    from pgwake.tracing.spans import RunSpan


class Attempt(Job):
    """A job from its claim to its end, as the engine has it.

    It is the Job too, as its handler sees it: one object for both, since each costs a
    claim time. Claimer, ReadyJobs, Runner and Finisher hand it on in this order.

    Attributes:
        renewed_at: When its lease was renewed, or claimed, on the monotonic clock. This
            process never compares its own clock with a column.
        started_at: When its handler began; None: it has not.
        deadline: When it has to have ended; None: no time limit.
        seconds: How long its handler ran, until it ended or had completed the job.
        stop_reason: As of Job.
        stopped_at: When it was told to stop.
        task: What runs it, while its handler runs.
        completion: Its end by transaction(), from the beginning of the block on.
        service: What its handler may ask for.
        steps: Those of this attempt, once its handler has asked for one.
        run: Its span, where runs have some.
        admits: Whether its end may let another job in: of its key, its child, or of a
            queue whose limits leave little room.
    """

    __slots__ = (
        "admits",
        "completion",
        "deadline",
        "renewed_at",
        "run",
        "seconds",
        "service",
        "started_at",
        "steps",
        "stop_reason",
        "stopped_at",
        "task",
    )

    def __init__(
        self,
        row: "asyncpg.Record",
        queue: str,
        claimed_at: float,
        asked_at: float,
    ) -> None:
        Job.__init__(self, row, queue, claimed_at)
        self.renewed_at = asked_at
        self.started_at: float | None = None
        self.deadline: float | None = None
        self.seconds = 0.0
        self.stop_reason: StopReason | None = None
        self.stopped_at: float | None = None
        self.task: Stoppable | None = None
        self.completion: Completion | None = None
        self.service: Service | None = None
        self.steps: Steps | None = None
        self.run: RunSpan | None = None
        self.admits = bool(self._options) and "admits" in self.options

    @classmethod
    def from_claim(cls, claim: Claim, asked_at: float) -> list["Attempt"]:
        """Make the attempts of a claim that was asked for then."""
        jobs = [cls(row, claim.queue, claim.claimed_at, asked_at) for row in claim.jobs]
        if claim.is_limited:
            for job in jobs:
                job.admits = True
        return jobs

    @property
    def has_expired(self) -> bool:
        """Whether its lease has run out, as far as this process knows."""
        return monotonic() - self.renewed_at > self.lease_seconds

    @property
    def suspension(self) -> Suspension | None:
        """Why it is to leave its worker; None: its handler has not asked for that."""
        return None if self.steps is None else self.steps.suspension

    def begin(self, task: Stoppable, service: Service) -> None:
        """Note that its handler is called."""
        self.started_at = monotonic()
        self.task = task
        self.service = service

    def end(self) -> None:
        """Note that its handler has ended."""
        self.task = None
        self.take_time()

    def take_time(self) -> None:
        """Note how long it has run so far."""
        if self.started_at is not None:
            self.seconds = monotonic() - self.started_at

    def lose_lease(self) -> None:
        """Note that the lease is lost, without stopping a handler that knows it."""
        if self.stop_reason is None:
            self.stop_reason = "lease_lost"
            self.stopped_at = monotonic()

    def stop(self, reason: StopReason) -> None:
        """Ask the handler to stop: cancel it, again where it has swallowed that.

        On the loop's thread only. The first reason counts.
        """
        if self.stop_reason is None:
            self.stop_reason = reason
            self.stopped_at = monotonic()
        if self.task is not None:
            self.task.cancel()


class BatchStopper:
    """What stops one job of a batch; the call itself only when it was the last.

    Args:
        job: The job.
        going: The jobs of the batch that are not to stop, shared by all members.
        slot: Where the call runs.
    """

    __slots__ = ("_going", "_job", "_slot")

    def __init__(self, job: Attempt, going: set[Attempt], slot: Stoppable) -> None:
        self._job = job
        self._going = going
        self._slot = slot

    def cancel(self) -> None:
        """Stop the job: for the others' sake only its end changes."""
        self._going.discard(self._job)
        if self._going:
            self._job.task = None  # nothing runs that would be late with stopping
        else:
            self._slot.cancel()

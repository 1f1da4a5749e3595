"""The line that each job leaves in the log: never its payload."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from time import monotonic

import structlog

from pgwake.database.statements.finish import Failure
from pgwake.jobs.attempt import Attempt

log = structlog.get_logger()


def started(job: Attempt) -> None:
    """Log that an attempt begins."""
    _debug(
        "job started", job=job.id, kind=job.kind, queue=job.queue, attempt=job.attempt
    )


def failed_late(job: Attempt, error: str, traceback: str | None) -> None:
    """Log what a handler raised after it had completed its job."""
    log.error(
        "handler failed after it had completed its job",
        job=job.id,
        kind=job.kind,
        error=error,
        traceback=traceback,
    )


def stopped_late(job: Attempt, reason: str) -> None:
    """Log that a handler was stopped after it had completed its job."""
    log.warning(
        "handler stopped after it had completed its job",
        job=job.id,
        kind=job.kind,
        reason=reason,
    )


def enqueued(job_id: int, kind: str, queue: str) -> None:
    """Log that a client has pushed a job."""
    _debug("job enqueued", job=job_id, kind=kind, queue=queue)


def enqueued_many(count: int, queue: str) -> None:
    """Log that a client has pushed jobs."""
    _debug("jobs enqueued", count=count, queue=queue)


def _debug(event: str, **fields: object) -> None:
    """Log at debug level; unconfigured, structlog would print it at any level."""
    if structlog.is_configured():
        log.debug(event, **fields)


class _Lines:
    """The lines of one event: up to a number a second, the others summed up in one."""

    def __init__(self, per_second: int, event: str) -> None:
        self._per_second = per_second
        self._event = event
        self._second = 0
        self._written = 0
        self._left_out = 0

    def admit(self, count: int = 1) -> int:
        """How many lines there are to be for so many jobs."""
        second = int(monotonic())
        if second != self._second:
            self._second, self._written = second, 0
        admitted = min(count, self._per_second - self._written)
        self._written += admitted
        if count > admitted:
            if not self._left_out:
                asyncio.get_running_loop().call_later(1.0, self.summarise)
            self._left_out += count - admitted
        return admitted

    def summarise(self) -> None:
        """Log how many had no line of their own since the last time."""
        if self._left_out:
            log.info(self._event, count=self._left_out)
            self._left_out = 0


class JobLog:
    """Writes a line a job: failures always, other ends up to a number a second.

    Args:
        per_second: Lines a second for completed jobs, and for those that are given
            back (at least 10); the others are summed up in one.
    """

    def __init__(self, per_second: int) -> None:
        self._completed = _Lines(per_second, "jobs completed, without lines")
        self._released = _Lines(max(per_second, 10), "jobs released, without lines")

    def completed(self, jobs: Sequence[Attempt]) -> None:
        """Log jobs that were completed together."""
        for job in jobs[: self._completed.admit(len(jobs))]:
            log.info("job completed", **self._fields(job))

    def ended(self, job: Attempt, outcome: str, failure: Failure | None) -> None:
        """Log how an attempt ended, but for completed ones."""
        if outcome == "retry":
            log.warning("attempt failed, will retry", **self._fields(job, failure))
        elif outcome == "failed":
            log.error("job failed for good", **self._fields(job, failure))
        elif outcome == "cancelled":
            log.info("job cancelled", **self._fields(job))
        else:
            log.warning("lease lost, end refused", **self._fields(job))

    def released(self, job: Attempt, reason: str, delay: timedelta | None) -> None:
        """Log that a job was given back, and for how long if its handler said so."""
        # Of a kind that nobody knows there may be any number, again and again.
        if not self._released.admit():
            return
        fields = self._fields(job)
        if delay is not None:
            fields["delay_s"] = delay.total_seconds()
        write = log.warning if reason == "unknown_kind" else log.info
        write("job released", **fields, reason=reason)

    def _fields(
        self, job: Attempt, failure: Failure | None = None
    ) -> dict[str, object]:
        fields: dict[str, object] = {
            "job": job.id,
            "kind": job.kind,
            "queue": job.queue,
            "attempt": job.attempt,
            "queue_ms": round(job.queue_seconds * 1000, 1),
            "execution_ms": round(job.seconds * 1000, 1),
        }
        if job.run is not None:
            fields |= job.run.ids
        if failure is not None:
            fields["error"] = failure.message
            if failure.traceback is not None:
                fields["traceback"] = failure.traceback
        return fields

    def summarise(self) -> None:
        """Log how many jobs had no line of their own since the last time."""
        self._completed.summarise()
        self._released.summarise()

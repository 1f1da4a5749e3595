"""What becomes of attempts, by what their handlers raised or returned."""

import structlog

from pgwake.engine.finisher import Finisher
from pgwake.errors import InvalidPayloadError, InvalidValueError
from pgwake.jobs.attempt import Attempt
from pgwake.jobs.error_reports import ReportedError, describe
from pgwake.jobs.outcomes import Discard, Retry, Snooze, outcome_of
from pgwake.jobs.steps import is_suspend
from pgwake.observe import joblog

log = structlog.get_logger()


class Verdicts:
    """Ends attempts as their handlers had it.

    Args:
        finisher: Where ends go.
    """

    def __init__(self, finisher: Finisher) -> None:
        self._finisher = finisher

    def end(self, job: Attempt, end: BaseException | str | None) -> None:
        """End an attempt: by what its handler raised, or with its result."""
        if job.is_completed:
            if end is not None:
                _tell_ignored(job, end)
        elif job.should_stop:
            self.stopped(job)
        elif job.suspension is not None and not _is_failure(end):
            self._finisher.suspend(job, job.suspension)
        elif isinstance(end, BaseException):
            self.raised(job, end)
        else:
            self._finisher.complete(job, end)

    def raised(self, job: Attempt, problem: BaseException) -> None:
        """End an attempt as its handler said, or as failed."""
        fail = self._finisher.fail
        match outcome_of(problem):
            case Snooze() as snooze:
                self._finisher.release(job, "snooze", snooze.delay)
            case Retry() as retry:
                fail(job, retry, retry_in=retry.delay)
            case Discard() as discard:
                fail(job, discard, reason="discarded", retryable=False)
            case InvalidPayloadError():
                fail(job, str(problem), reason="invalid", retryable=False)
            case InvalidValueError() as invalid:
                fail(job, invalid, reason="invalid")
            case ReportedError() as report:
                fail(
                    job,
                    report,
                    reason=report.reason,
                    retryable=report.retryable,
                    retry_in=report.retry_in,
                )
            case _:
                fail(job, problem)

    def stopped(self, job: Attempt) -> None:
        """End a job that was told to stop: never as done."""
        match job.stop_reason:
            case "timeout" if job.started_at is not None and job.deadline is not None:
                limit = round(job.deadline - job.started_at, 3)
                self._finisher.fail(
                    job, f"timed out after {limit:g} s", reason="timeout"
                )
            case "cancelled":
                self._finisher.fail(job, "cancelled", reason="cancelled")
            case "shutdown":
                started = job.started_at is not None
                self._finisher.release(job, "shutdown" if started else "unstarted")
            case _:
                self._finisher.drop(job)


def _is_failure(end: BaseException | str | None) -> bool:
    """Whether a handler that was unwound has failed at that, say in a `finally`."""
    return isinstance(end, BaseException) and not is_suspend(end)


def _tell_ignored(job: Attempt, end: BaseException | str) -> None:
    """Tell what came of a handler after it had completed its job."""
    if job.stop_reason is not None:
        joblog.stopped_late(job, job.stop_reason)
    elif isinstance(end, BaseException):
        joblog.failed_late(job, *describe(end))
    else:
        log.warning(
            "result ignored: the job was completed before",
            job=job.id,
            kind=job.kind,
            hint="use job.set_result() in the block of transaction()",
        )

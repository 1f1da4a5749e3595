"""What became of jobs, and who is told of it beside the database."""

from collections.abc import Sequence
from datetime import timedelta
from typing import NamedTuple

from pgwake.database.statements.finish import Failure
from pgwake.jobs.attempt import Attempt
from pgwake.jobs.error_reports import type_of
from pgwake.jobs.steps import Suspension
from pgwake.observe import joblog
from pgwake.observe.joblog import JobLog
from pgwake.observe.metrics import Metrics


class Release(NamedTuple):
    """A job goes back unburnt; see release_jobs for the reasons."""

    reason: str
    delay: timedelta | None = None
    error: str | None = None  # to be kept in the job's errors


class End(NamedTuple):
    """What became of a job: a result, a failure, or why it goes back."""

    job: Attempt
    what: str | Failure | Release | Suspension | None


class EndReporter:
    """What a finisher tells of ends: metrics, the log, and the spans of runs.

    None of it may raise.

    Args:
        metrics: Where to count.
        job_log: Where each job's line goes.
    """

    def __init__(self, metrics: Metrics, job_log: JobLog) -> None:
        self._metrics = metrics
        self._job_log = job_log

    def arrived(self, end: End, error: BaseException | str | None) -> None:
        """Hear of an end that is to be written; error: what has failed the attempt."""
        job, what = end
        if error is None or job.run is None:
            return
        if isinstance(what, Failure) and what.reason != "cancelled":
            name = type_of(error) or what.reason
            job.run.failed(job.id, name, what.message, what.traceback)

    def written(self, seconds: float) -> None:
        """Hear how many seconds a statement took that has written ends."""
        self._metrics.flush_seconds.add((), [seconds])

    def ended(self, ends: Sequence[End], outcomes: Sequence[str]) -> None:
        """Hear what the database has answered; refused: it takes no end of the job."""
        completed = []
        for end, outcome in zip(ends, outcomes, strict=True):
            if outcome == "completed":
                _tell_ignored(end)
            if outcome == "completed" and end.job.run is None:
                completed.append(end.job)
            else:
                self._ended(end, outcome)
        if completed:
            self._metrics.ended(completed, "completed")
            self._job_log.completed(completed)

    def _ended(self, end: End, outcome: str) -> None:
        job, what = end
        if outcome == "released" and isinstance(what, Release | Suspension):
            delay = what.delay if isinstance(what, Release) else None
            self._metrics.released(job, what.reason)
            self._job_log.released(job, what.reason, delay)
            if what.reason == "snooze":
                outcome = "snoozed"
            elif isinstance(what, Suspension):
                outcome = "suspended"
        elif outcome != "refused":
            if outcome == "cancel_requested":
                outcome = "cancelled"
            self._metrics.ended([job], outcome)
            if outcome == "completed":
                self._job_log.completed([job])
            else:
                failure = what if isinstance(what, Failure) else None
                self._job_log.ended(job, outcome, failure)
        if job.run is not None:
            job.run.decided(job.id, outcome)


def _tell_ignored(end: End) -> None:
    """Log how a handler ended that had completed its job in its own transaction."""
    match end.what:
        case Failure(reason="timeout" | "cancelled") | Release() | Suspension():
            joblog.stopped_late(end.job, end.what.reason)
        case Failure():
            joblog.failed_late(end.job, end.what.message, end.what.traceback)

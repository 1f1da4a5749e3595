"""The last half hour of the queues, as this process has sampled it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

INTERVAL_SECONDS = 10.0  # between samples, mostly
LENGTH = 180  # samples


@dataclass(frozen=True, slots=True)
class Point:
    """What a queue was at one time.

    Attributes:
        pending: Jobs that were due.
        scheduled: Jobs that were not yet due: before the first attempt, or after one.
        running: Jobs that ran.
        enqueued: Jobs enqueued since the installation; so are the next three.
        completed: Jobs completed.
        failed: Jobs sent to the dead letters.
        retried: Attempts that failed and were not the last.
        queue_ms: What the jobs of the last five minutes waited on average, in
            milliseconds from being due to being claimed; None if there were none.
        execution_ms: What they ran, likewise.
    """

    pending: int
    scheduled: int
    running: int
    enqueued: int
    completed: int
    failed: int
    retried: int
    queue_ms: float | None
    execution_ms: float | None


class History:
    """The last samples; one thread adds, any may read.

    Attributes:
        samples: The samples, oldest first: when, and each queue's point.
    """

    def __init__(self) -> None:
        self.samples: tuple[tuple[datetime, Mapping[str, Point]], ...] = ()

    def add(self, at: datetime, rows: Iterable[Mapping[str, Any]]) -> None:
        """Add a sample: rows of get_metrics."""
        points = {
            row["queue"]: Point(
                row["pending_count"],
                row["scheduled_count"],
                row["running_count"],
                row["enqueued_total"],
                row["completed_total"],
                row["failed_total"],
                row["retried_total"],
                row["avg_queue_time_ms"],
                row["avg_execution_time_ms"],
            )
            for row in rows
        }
        self.samples = (*self.samples, (at, points))[-LENGTH:]

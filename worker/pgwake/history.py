"""The last half hour of the queues, as this process has sampled it."""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

INTERVAL_SECONDS = 10.0
LENGTH = 180  # samples
MAX_QUEUES = 200  # that a sample keeps, those first by name


@dataclass(frozen=True, slots=True)
class Point:
    """What a queue was at one time.

    Attributes:
        pending: Jobs that were due.
        running: Jobs that ran.
        enqueued: Jobs enqueued since the installation; so are the next two.
        completed: Jobs completed.
        failed: Jobs sent to the dead letters.
        queue_ms: What the jobs of the last five minutes waited on average, in
            milliseconds from being due to being claimed; None if there were none.
        execution_ms: What they ran, likewise.
    """

    pending: int
    running: int
    enqueued: int
    completed: int
    failed: int
    queue_ms: float | None
    execution_ms: float | None


class History:
    """A ring of samples; one thread adds, any may read."""

    def __init__(self) -> None:
        self._samples: deque[tuple[datetime, Mapping[str, Point]]] = deque(
            maxlen=LENGTH
        )
        self._shown: tuple[tuple[datetime, Mapping[str, Point]], ...] = ()

    def add(self, at: datetime, rows: Iterable[Mapping[str, Any]]) -> None:
        """Add the rows of get_queue_stats."""
        points = {
            row["queue"]: Point(
                row["pending_count"],
                row["running_count"],
                row["enqueued_total"],
                row["completed_total"],
                row["failed_total"],
                row["avg_queue_time_ms"],
                row["avg_execution_time_ms"],
            )
            for _, row in zip(range(MAX_QUEUES), rows, strict=False)
        }
        self._samples.append((at, points))
        self._shown = tuple(self._samples)

    @property
    def samples(self) -> tuple[tuple[datetime, Mapping[str, Point]], ...]:
        """The samples, oldest first: when, and each queue's point."""
        return self._shown

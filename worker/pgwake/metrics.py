"""Prometheus metrics of one worker process, in a registry of its own."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)

from pgwake.job import Job
from pgwake.tally import Counts, Seconds

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5, 30, 300)

# The columns of get_queue_stats that become gauges, with their help texts.
_QUEUE_GAUGES = {
    "pending_count": "jobs that are due",
    "scheduled_count": "jobs that are not yet due",
    "waiting_count": "jobs that wait for something else",
    "running_count": "jobs that run",
    "failed_count": "dead letters",
    "oldest_pending_age": "seconds that the longest-due job has been due",
}


class Metrics:
    """The metrics; labels are bounded, since unknown kinds fold into one.

    Args:
        kinds: The kinds that this process handles.
    """

    def __init__(self, kinds: Iterable[str]) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        self._kinds = frozenset(kinds)
        job = ("queue", "kind")
        self._claimed = self._counts("jobs_claimed", "claims of a job", job)
        self._completed = self._counts("jobs_completed", "jobs completed", job)
        self._failed = self._counts("jobs_failed", "jobs sent to the dead letters", job)
        self._retried = self._counts(
            "jobs_retried", "failed attempts that will be retried", job
        )
        self._cancelled = self._counts("jobs_cancelled", "jobs cancelled", job)
        self._released = self._counter(
            "jobs_released", "jobs given back unburnt", (*job, "reason")
        )
        self._crashed = self._counter(
            "jobs_crashed", "jobs taken from a dead or silent worker", job
        )
        self._lease_lost = self._counts(
            "leases_lost", "ends refused since the lease was lost", job
        )
        self._ticks = self._counter(
            "schedule_ticks",
            "ticks of schedules: fired, left_out while the last job was live, or looks"
            " that were refused for the schedule's problem",
            ("outcome",),
        )
        self._woken = self._counter(
            "wakeups", "looks at a queue, by what caused them", ("queue", "cause")
        )
        self._queue_seconds = self._seconds(
            "job_queue_seconds", "from being due to being claimed", job
        )
        self._execution_seconds = self._seconds(
            "job_execution_seconds", "the handler's run", job
        )
        self.claim_seconds = self._histogram("claim_seconds", "one claim statement")
        self.flush_seconds = self._histogram(
            "flush_seconds", "one statement that ends jobs"
        )
        self.slots = self._gauge("slots", "jobs that may run at once", ("queue",))
        self.busy_slots = self._gauge("slots_busy", "jobs that run now", ("queue",))
        self.listener_up = self._gauge(
            "listener_up", "1 while the process listens for wake-ups"
        )
        self.bell_held = self._gauge(
            "bell_held",
            "1 while the process is the one that the queue's inserts wake",
            ("queue",),
        )
        self.notification_queue_usage = self._gauge(
            "notification_queue_usage",
            "how full the server's queue of notifications is, from 0 to 1: it fills"
            " while a listener stays in a transaction; full, it fails every NOTIFY",
        )
        self.loop_lag = self._gauge(
            "loop_lag_seconds", "how late the main loop answered the last time"
        )
        self._queues = {
            column: self._gauge(f"queue_{_gauge_name(column)}", text, ("queue",))
            for column, text in _QUEUE_GAUGES.items()
        }

    def _counter(self, name: str, text: str, labels: Iterable[str] = ()) -> Counter:
        return Counter(f"pgwake_{name}", text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str, labels: Iterable[str] = ()) -> Gauge:
        return Gauge(f"pgwake_{name}", text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str, labels: Iterable[str] = ()) -> Histogram:
        return Histogram(
            f"pgwake_{name}", text, labels, buckets=_SECONDS, registry=self.registry
        )

    def _counts(self, name: str, text: str, labels: Sequence[str]) -> Counts:
        return Counts(f"pgwake_{name}", text, labels, self.registry)

    def _seconds(self, name: str, text: str, labels: Sequence[str]) -> Seconds:
        return Seconds(f"pgwake_{name}", text, labels, self.registry, _SECONDS)

    def _kind(self, kind: str) -> str:
        return kind if kind in self._kinds else "(unknown)"

    def claimed(self, jobs: Iterable[Job]) -> None:
        """Count claims."""
        for job in jobs:
            labels = job.queue, self._kind(job.kind)
            self._claimed.add(labels)
            self._queue_seconds.add(labels, job.queue_seconds)

    def ended(self, job: Job, outcome: str, seconds: float) -> None:
        """Count how an attempt ended."""
        match outcome:
            case "completed":
                counts = self._completed
            case "retry":
                counts = self._retried
            case "failed":
                counts = self._failed
            case "cancelled":
                counts = self._cancelled
            case _:
                counts = self._lease_lost
        labels = job.queue, self._kind(job.kind)
        counts.add(labels)
        self._execution_seconds.add(labels, seconds)

    def released(self, job: Job, reason: str) -> None:
        """Count a job given back."""
        self._released.labels(job.queue, self._kind(job.kind), reason).inc()

    def crashed(self, queue: str, kind: str, count: int) -> None:
        """Count jobs that were taken from a dead worker."""
        self._crashed.labels(queue, self._kind(kind)).inc(count)

    def ticked(self, outcome: str, count: int) -> None:
        """Count ticks of schedules."""
        self._ticks.labels(outcome).inc(count)

    def woken(self, queue: str, cause: str) -> None:
        """Count a wake-up."""
        self._woken.labels(queue, cause).inc()

    def show_queue(self, row: Mapping[str, Any]) -> None:
        """Set the gauges of a queue from a row of get_queue_stats."""
        for column, gauge in self._queues.items():
            value = row[column]
            if hasattr(value, "total_seconds"):
                value = value.total_seconds()
            gauge.labels(row["queue"]).set(value or 0)

    def render(self) -> bytes:
        """Return the text that Prometheus scrapes."""
        return generate_latest(self.registry)


def _gauge_name(column: str) -> str:
    if column.endswith("_age"):
        return f"{column}_seconds"
    return f"{column.removesuffix('_count')}_jobs"

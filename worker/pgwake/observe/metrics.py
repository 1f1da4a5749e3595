"""Prometheus metrics of one worker process, in a registry of its own."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from prometheus_client import (
    CollectorRegistry,
    PlatformCollector,
    ProcessCollector,
)
from prometheus_client.exposition import choose_encoder

from pgwake.database.statements.upkeep import CrashCount
from pgwake.jobs.attempt import Attempt
from pgwake.observe.database import DatabaseMetrics
from pgwake.observe.findings import FindingMetrics
from pgwake.observe.metric_types import (
    CounterByLabels,
    GaugeByLabels,
    Instants,
    Seconds,
)
from pgwake.version import __version__

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5, 30, 300)


class Metrics:
    """The metrics, a call each; labels are bounded, since unknown kinds fold into one.

    Args:
        kinds: The kinds that this process handles.
    """

    def __init__(self, kinds: Iterable[str]) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        self._kinds = frozenset(kinds)
        job = ("queue", "kind")
        self._claimed = self._counts("jobs_claimed", "Claims: attempts begun.", job)
        self._completed = self._counts("jobs_completed", "Jobs completed.", job)
        self._failed = self._counts(
            "jobs_failed", "Jobs that became dead letters, crashed ones included.", job
        )
        self._retried = self._counts(
            "jobs_retried", "Failed attempts that will be retried.", job
        )
        self._cancelled = self._counts("jobs_cancelled", "Running jobs cancelled.", job)
        self._released = self._counts(
            "jobs_released",
            "Jobs given back, the attempt not counted.",
            (*job, "reason"),
        )
        self._crashed = self._counts(
            "jobs_crashed",
            "Jobs taken from a dead or silent worker: returned to their queue, failed"
            " since it was once too often, or cancelled as somebody had asked for.",
            (*job, "outcome"),
        )
        self._expired = self._counts(
            "jobs_expired", "Jobs cancelled, not started by their expires_at.", job
        )
        self._lease_lost = self._counts(
            "leases_lost",
            "Ends refused since the lease was lost; whoever took the job counted it as"
            " crashed.",
            job,
        )
        self._ticks = self._counts(
            "schedule_ticks",
            "Ticks of schedules: fired, left_out while the last job was live, or looks"
            " that were refused for the schedule's problem.",
            ("outcome",),
        )
        for outcome in ("fired", "left_out", "refused"):
            self._ticks.add((outcome,), 0)
        self._woken = self._counts(
            "wakeups", "Looks at a queue, by what caused them.", ("queue", "cause")
        )
        self.bad_notifications = self._counts(
            "bad_notifications",
            "Notifications of cancellations that can't be understood. Whoever may"
            " connect to the database may send them; they do nothing.",
            (),
        )
        self.bad_notifications.add((), 0)
        self._queue_seconds = self._seconds(
            "job_queue_seconds", "From being due to being claimed.", job
        )
        self._execution_seconds = self._seconds(
            "job_execution_seconds", "The handler's run.", job
        )
        self.claim_seconds = self._seconds("claim_seconds", "One claim statement.")
        self.flush_seconds = self._seconds(
            "flush_seconds", "One statement that ends jobs."
        )
        self.slots = self._gauge("slots", "Jobs that may run at once.", ("queue",))
        self.busy_slots = self._gauge("slots_busy", "Jobs that run now.", ("queue",))
        self.claim_succeeded = self._instants(
            "claim_succeeded_timestamp_seconds",
            "When a claim was last answered, with jobs or without; before the first"
            " one, when the worker started. One that sleeps or has no free slot makes"
            " none.",
            ("queue",),
        )
        self.upkeep_succeeded = self._instants(
            "upkeep_succeeded_timestamp_seconds",
            "When a step of the upkeep was last done: sample, diagnose and report by"
            " this process, the others by any process of the database, as far as this"
            " one knows; before the first time, when it started.",
            ("step",),
        )
        self.database_up = self._gauge(
            "database_up", "1 while the process has a session that answers."
        )
        self.listener_up = self._gauge(
            "listener_up", "1 while the process listens for wake-ups."
        )
        self.notify_lock_held = self._gauge(
            "notify_lock_held",
            "1 while the process is the one that the queue's inserts wake.",
            ("queue",),
        )
        self.loop_lag = self._gauge(
            "loop_lag_seconds", "How late the main loop answered the last time."
        )
        self._gauge(
            "build_info", "1; the label says which version runs.", ("version",)
        ).set(1, __version__)
        self._database = DatabaseMetrics(self.registry)
        self.findings = FindingMetrics(self.registry)

    def _gauge(self, name: str, text: str, labels: Sequence[str] = ()) -> GaugeByLabels:
        return GaugeByLabels(f"pgwake_{name}", text, labels, self.registry)

    def _counts(self, name: str, text: str, labels: Sequence[str]) -> CounterByLabels:
        return CounterByLabels(f"pgwake_{name}", text, labels, self.registry)

    def _instants(self, name: str, text: str, labels: Sequence[str]) -> Instants:
        return Instants(f"pgwake_{name}", text, labels, self.registry)

    def _seconds(self, name: str, text: str, labels: Sequence[str] = ()) -> Seconds:
        return Seconds(f"pgwake_{name}", text, labels, self.registry, _SECONDS)

    def _kind(self, kind: str) -> str:
        return kind if kind in self._kinds else "(unknown)"

    def _by_labels(
        self, jobs: Iterable[Attempt]
    ) -> Iterable[tuple[tuple[str, str], list[Attempt]]]:
        """Group jobs by the labels they are counted under."""
        groups = defaultdict(list)
        for job in jobs:
            groups[job.queue, job.kind].append(job)
        return [
            ((queue, self._kind(kind)), group)
            for (queue, kind), group in groups.items()
        ]

    def claimed(self, jobs: Iterable[Attempt]) -> None:
        """Count claims."""
        for labels, group in self._by_labels(jobs):
            self._claimed.add(labels, len(group))
            self._queue_seconds.add(labels, [job.queue_seconds for job in group])

    def ended(self, jobs: Iterable[Attempt], outcome: str) -> None:
        """Count how attempts ended."""
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
        for labels, group in self._by_labels(jobs):
            counts.add(labels, len(group))
            self._execution_seconds.add(labels, [job.seconds for job in group])

    def released(self, job: Attempt, reason: str) -> None:
        """Count a job given back."""
        self._released.add((job.queue, self._kind(job.kind), reason))

    def given_back(self, job: Attempt, outcome: str, reason: str) -> None:
        """Count what release_jobs has answered for a job."""
        if outcome == "released":
            self.released(job, reason)
        else:
            outcome = "cancelled" if outcome == "cancel_requested" else outcome
            self.ended([job], outcome)

    def crashed(self, crashed: CrashCount, *, were_claimed: bool = True) -> None:
        """Count jobs that were taken from a dead worker.

        Args:
            crashed: Which.
            were_claimed: Whether that worker has shown their claims itself.
        """
        labels = crashed.queue, self._kind(crashed.kind)
        returned = crashed.jobs - crashed.failed - crashed.cancelled
        for outcome, count in (
            ("returned", returned),
            ("failed", crashed.failed),
            ("cancelled", crashed.cancelled),
        ):
            if count:
                self._crashed.add((*labels, outcome), count)
        if crashed.failed:
            self._failed.add(labels, crashed.failed)
        if crashed.cancelled:
            self._cancelled.add(labels, crashed.cancelled)
        if not were_claimed:
            self._claimed.add(labels, crashed.jobs)

    def expired(self, queue: str, kind: str, count: int) -> None:
        """Count jobs that were cancelled since they had not been started in time."""
        self._expired.add((queue, self._kind(kind)), count)

    def ticked(self, outcome: str, count: int) -> None:
        """Count ticks of schedules."""
        self._ticks.add((outcome,), count)

    def woken(self, queue: str, cause: str) -> None:
        """Count a wake-up."""
        self._woken.add((queue, cause))

    def show(
        self, database: Mapping[str, Any], queues: Sequence[Mapping[str, Any]]
    ) -> list[Mapping[str, Any]]:
        """Show a sample of get_metrics; return the rows that are shown as they are."""
        return self._database.show(database, queues)

    def render(self) -> bytes:
        """Return the text that Prometheus scrapes."""
        return self.encode("")[0]

    def encode(self, accept: str) -> tuple[bytes, str]:
        """Return the text in the format that an Accept header asks for, and its type.

        OpenMetrics, or what Prometheus had before.
        """
        encode, content_type = choose_encoder(accept)
        return encode(self.registry), content_type

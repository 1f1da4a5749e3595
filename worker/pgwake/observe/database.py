"""The metrics of the whole database: what the last sample said, while it is fresh."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from time import monotonic
from typing import Any, NamedTuple

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

FRESH_SECONDS = 60.0  # after which a sample is not shown any more
MAX_QUEUES = 200  # that have series of their own
OTHER = "(other)"  # the queue of all the rest

Row = Mapping[str, Any]


class _Column(NamedTuple):
    """A column of get_metrics, and how it is shown."""

    column: str
    name: str
    text: str
    adds_up: bool = True  # over the queues of OTHER; else it is the most of them


_GAUGES = (
    _Column("pending_count", "queue_pending_jobs", "Jobs that are due."),
    _Column("scheduled_count", "queue_scheduled_jobs", "Jobs that are not yet due."),
    _Column(
        "waiting_count",
        "queue_waiting_jobs",
        "Jobs that wait for others: for their parents, or for room of their key.",
    ),
    _Column("running_count", "queue_running_jobs", "Jobs that run."),
    _Column("failed_count", "queue_failed_jobs", "Dead letters that are kept."),
    _Column(
        "oldest_pending_age",
        "queue_oldest_pending_age_seconds",
        "For how long the longest-due job has been due; 0 if none is.",
        adds_up=False,
    ),
    _Column(
        "worker_count",
        "queue_workers",
        "Workers of the queue that have been seen within 30 seconds.",
        adds_up=False,
    ),
    _Column("is_paused", "queue_paused", "1 while the queue is paused.", adds_up=False),
)
_COUNTERS = (
    _Column(
        "enqueued_total",
        "queue_jobs_enqueued",
        "Jobs enqueued since the installation, by whomever.",
    ),
    _Column(
        "completed_total",
        "queue_jobs_completed",
        "Jobs completed since the installation, by whomever.",
    ),
    _Column(
        "failed_total",
        "queue_jobs_failed",
        "Dead letters since the installation, whoever or whatever failed the job.",
    ),
)
_OF_DATABASE = (
    _Column(
        "schedule_lag",
        "schedule_lag_seconds",
        "How late the schedule is that should have fired longest ago; 0 if none is.",
    ),
    _Column(
        "oldest_snapshot_age",
        "oldest_snapshot_age_seconds",
        "How long the oldest transaction, snapshot or replication slot that this role"
        " can see has pinned the database's dead rows; 0 if none does.",
    ),
    _Column(
        "notification_queue_usage",
        "notification_queue_usage",
        "How full the server's queue of notifications is, from 0 to 1: it fills while"
        " a listener stays in a transaction; full, it fails every NOTIFY.",
    ),
)


class DatabaseMetrics(Collector):
    """Shows a sample until it is a minute old: neither 0 nor for ever.

    One thread shows, any thread may collect. A series ends with its queue. The counters
    never fall: should the database count less than before, since it was restored, they
    stand until it has caught up.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._own: set[str] = set()
        self._totals: dict[tuple[str, str], int] = {}
        self._sample: tuple[float, list[Metric]] = (0.0, [])
        registry.register(self)

    def show(self, database: Row, queues: Sequence[Row]) -> list[Row]:
        """Take a sample of get_metrics; return the rows that are shown as they are."""
        self._choose(queues)
        own = [row for row in queues if row["queue"] in self._own]
        others = [row for row in queues if row["queue"] not in self._own]
        shown = [*own, _other(others)] if others else own
        totals: dict[tuple[str, str], int] = {}
        families = _families()
        for column in _GAUGES:
            for row in shown:
                families[column].add_metric([row["queue"]], _number(row[column.column]))
        for column in _COUNTERS:
            for row in shown:
                key = column.column, row["queue"]
                totals[key] = max(row[column.column], self._totals.get(key, 0))
                families[column].add_metric([row["queue"]], totals[key])
        for column in _OF_DATABASE:
            families[column].add_metric([], _number(database[column.column]))
        self._totals = totals
        self._sample = monotonic(), list(families.values())
        return own

    def _choose(self, queues: Sequence[Row]) -> None:
        """Choose who has series of its own; who has keeps it.

        First those that have workers, then by the jobs that they have ever had.
        """
        self._own &= {row["queue"] for row in queues}
        new = [row for row in queues if row["queue"] not in {*self._own, OTHER}]
        new.sort(key=lambda row: (not row["worker_count"], -row["enqueued_total"]))
        room = MAX_QUEUES - len(self._own)
        self._own.update(row["queue"] for row in new[:room])

    def describe(self) -> Iterable[Metric]:
        """Return the families without their samples."""
        return _families().values()

    def collect(self) -> Iterable[Metric]:
        """Return the families; without samples where they are too old."""
        at, families = self._sample
        return families if monotonic() - at < FRESH_SECONDS else self.describe()


def _families() -> dict[_Column, GaugeMetricFamily | CounterMetricFamily]:
    families: dict[_Column, GaugeMetricFamily | CounterMetricFamily] = {}
    for kind, columns, labels in (
        (GaugeMetricFamily, _GAUGES, ["queue"]),
        (CounterMetricFamily, _COUNTERS, ["queue"]),
        (GaugeMetricFamily, _OF_DATABASE, []),
    ):
        for column in columns:
            families[column] = kind(f"pgwake_{column.name}", column.text, labels=labels)
    return families


def _other(queues: Sequence[Row]) -> Row:
    """Fold queues into one."""
    row: dict[str, Any] = {"queue": OTHER}
    for column in (*_GAUGES, *_COUNTERS):
        fold = sum if column.adds_up else max
        row[column.column] = fold(_number(one[column.column]) for one in queues)
    return row


def _number(value: float | timedelta | None) -> float:
    if isinstance(value, timedelta):
        return value.total_seconds()
    return value or 0

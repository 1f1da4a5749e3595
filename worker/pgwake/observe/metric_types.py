"""Counters and histograms that every job can afford.

prometheus_client's take two microseconds a call, locks and look-ups by label included:
half of what the worker spent on a job. These are a dictionary and a bisection. One
thread adds at a time; any thread may collect, and sees a sum that is a moment old.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from time import time

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.registry import Collector


class CounterByLabels(Collector):
    """A counter by labels."""

    def __init__(
        self, name: str, text: str, labels: Sequence[str], registry: CollectorRegistry
    ) -> None:
        self._name, self._text, self._labelnames = name, text, tuple(labels)
        self._values: dict[tuple[str, ...], int] = {}
        registry.register(self)

    def add(self, labels: tuple[str, ...], count: int = 1) -> None:
        """Count it; a count of 0 begins the series."""
        self._values[labels] = self._values.get(labels, 0) + count

    def describe(self) -> Iterable[Metric]:
        """Return the family without its samples."""
        return [CounterMetricFamily(self._name, self._text, labels=self._labelnames)]

    def collect(self) -> Iterable[Metric]:
        """Return the family."""
        family = CounterMetricFamily(self._name, self._text, labels=self._labelnames)
        for labels, value in list(self._values.items()):
            family.add_metric(labels, value)
        return [family]


class GaugeByLabels(Collector):
    """What something is now, by labels: a value, or what a function returns.

    Not prometheus_client's Gauge: where an application has set PROMETHEUS_MULTIPROC_DIR
    each process would leave a file with it.
    """

    def __init__(
        self, name: str, text: str, labels: Sequence[str], registry: CollectorRegistry
    ) -> None:
        self._name, self._text, self._labelnames = name, text, tuple(labels)
        self._values: dict[tuple[str, ...], float | Callable[[], float]] = {}
        if not labels:
            self._values[()] = 0.0
        registry.register(self)

    def set(self, value: float | Callable[[], float], *labels: str) -> None:
        """Set the value, or the function that is asked for it."""
        self._values[labels] = value

    def describe(self) -> Iterable[Metric]:
        """Return the family without its samples."""
        return [GaugeMetricFamily(self._name, self._text, labels=self._labelnames)]

    def collect(self) -> Iterable[Metric]:
        """Return the family."""
        family = GaugeMetricFamily(self._name, self._text, labels=self._labelnames)
        for labels, value in list(self._values.items()):
            family.add_metric(labels, float(value() if callable(value) else value))
        return [family]


class Instants(Collector):
    """When something last happened, by labels, in seconds since 1970."""

    def __init__(
        self, name: str, text: str, labels: Sequence[str], registry: CollectorRegistry
    ) -> None:
        self._name, self._text, self._labelnames = name, text, tuple(labels)
        self._values: dict[tuple[str, ...], float] = {}
        registry.register(self)

    def note(self, labels: tuple[str, ...], seconds_ago: float = 0.0) -> None:
        """Note that it happens now, or did so many seconds ago if not since."""
        at = time() - seconds_ago
        if seconds_ago:
            at = max(at, self._values.get(labels, at))
        self._values[labels] = at

    def describe(self) -> Iterable[Metric]:
        """Return the family without its samples."""
        return [GaugeMetricFamily(self._name, self._text, labels=self._labelnames)]

    def collect(self) -> Iterable[Metric]:
        """Return the family."""
        family = GaugeMetricFamily(self._name, self._text, labels=self._labelnames)
        for labels, value in list(self._values.items()):
            family.add_metric(labels, value)
        return [family]


class Seconds(Collector):
    """A histogram of durations by labels, with these upper bounds."""

    def __init__(
        self,
        name: str,
        text: str,
        labels: Sequence[str],
        registry: CollectorRegistry,
        bounds: Sequence[float],
    ) -> None:
        self._name, self._text, self._labelnames = name, text, tuple(labels)
        self._bounds = tuple(bounds)
        self._names = [*(str(float(bound)) for bound in bounds), "+Inf"]
        # How many fell below each bound but not below the one before; last, their sum.
        self._values: dict[tuple[str, ...], list[float]] = {}
        if not labels:
            self._values[()] = [0.0] * (len(self._names) + 1)
        registry.register(self)

    def add(self, labels: tuple[str, ...], durations: Sequence[float]) -> None:
        """Count those that took so long."""
        values = self._values.get(labels)
        if values is None:
            values = self._values[labels] = [0.0] * (len(self._names) + 1)
        bounds = self._bounds
        for seconds in durations:
            values[bisect_left(bounds, seconds)] += 1
        values[-1] += sum(durations)

    def describe(self) -> Iterable[Metric]:
        """Return the family without its samples."""
        return [HistogramMetricFamily(self._name, self._text, labels=self._labelnames)]

    def collect(self) -> Iterable[Metric]:
        """Return the family."""
        family = HistogramMetricFamily(self._name, self._text, labels=self._labelnames)
        for labels, values in list(self._values.items()):
            *counts, total = values
            buckets = list(zip(self._names, accumulate(counts), strict=True))
            family.add_metric(labels, buckets, sum_value=total)
        return [family]

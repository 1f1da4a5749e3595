"""What a worker shows of itself: its metrics, and its pages."""

import asyncio
from collections.abc import Callable
from http.client import HTTPConnection
from typing import NamedTuple

from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from pgwake import Worker
from support import wait_for


class Samples:
    """What /metrics shows."""

    def __init__(self, text: bytes | str) -> None:
        text = text if isinstance(text, str) else text.decode()
        self._families: dict[str, Metric] = {
            family.name: family for family in text_string_to_metric_families(text)
        }
        self.types = {name: family.type for name, family in self._families.items()}

    def _samples(self, name: str, labels: dict[str, str]) -> list[Sample]:
        family = self._families[name]
        suffixes = {"counter": "_total", "histogram": "_count"}
        wanted = name + suffixes.get(family.type, "")
        return [
            sample
            for sample in family.samples
            if sample.name == wanted and labels.items() <= sample.labels.items()
        ]

    def total(self, name: str, **labels: str) -> float:
        """The sum over all samples with these labels; a histogram's count."""
        return sum(sample.value for sample in self._samples(name, labels))

    def has(self, name: str) -> bool:
        """Whether there is any sample of it."""
        return bool(self._samples(name, {}))

    def label_values(self, name: str, label: str) -> set[str]:
        """The values that a label has."""
        return {sample.labels[label] for sample in self._samples(name, {})}


def wakeups(worker: Worker, **labels: str) -> float:
    """How often a worker has looked at a queue."""
    return Samples(worker.metrics.render()).total("pgwake_wakeups", **labels)


def gauge(worker: Worker, name: str) -> float:
    """The value of a gauge, summed over its labels."""
    return Samples(worker.metrics.render()).total(f"pgwake_{name}")


async def shown(worker: Worker, condition: Callable[[Samples], bool]) -> Samples:
    """Wait until a worker's metrics show something; all that they show."""
    await wait_for(lambda: condition(Samples(worker.metrics.render())))
    return Samples(worker.metrics.render())


class HttpResponse(NamedTuple):
    """An answer by HTTP."""

    status: int
    text: str


def fetch_blocking(port: int, path: str) -> HttpResponse:
    """Ask a worker by HTTP, and block the loop meanwhile."""
    connection = HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return HttpResponse(answer.status, answer.read().decode())
    finally:
        connection.close()


async def fetch(port: int, path: str) -> HttpResponse:
    """Ask a worker by HTTP."""
    return await asyncio.to_thread(fetch_blocking, port, path)

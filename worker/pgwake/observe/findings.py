"""The metric of what diagnose() finds: what it said last, while that is fresh."""

from collections.abc import Iterable
from time import monotonic

import structlog
from prometheus_client import CollectorRegistry, Metric
from prometheus_client.metrics_core import GaugeMetricFamily
from prometheus_client.registry import Collector

from pgwake.database.connection import Connection
from pgwake.database.statements.doctor import count_findings

DIAGNOSE_SECONDS = 60.0
MAX_DIAGNOSE_SECONDS = 600.0
FRESH_SECONDS = 900.0  # after which what was found is not shown any more
MAX_SHARE = 0.002  # of one of the server's cores, that all workers together may take
DEADLINE = 2.0  # seconds that the server may take

log = structlog.get_logger()


class FindingMetrics(Collector):
    """Asks how much is wrong, and shows it for 15 minutes. Any thread may collect.

    Attributes:
        seconds: How long to wait until the next look, at least: the more workers there
            are and the longer the server takes, the longer.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self.seconds = DIAGNOSE_SECONDS
        self._shown: tuple[float, Metric] = (0.0, _family())
        registry.register(self)

    async def look(self, connection: Connection, worker_count: int) -> bool:
        """Look once; whether the database has answered in time."""
        began = monotonic()
        try:
            counts = await count_findings(connection, DEADLINE)
        except TimeoutError:
            log.warning("diagnosis timed out", seconds=DEADLINE)
            self.seconds = MAX_DIAGNOSE_SECONDS
            return False
        family = _family()
        for count in counts:
            family.add_metric([count.check, count.severity], count.findings)
        self._shown = monotonic(), family
        wait = (monotonic() - began) * worker_count / MAX_SHARE
        self.seconds = min(max(wait, DIAGNOSE_SECONDS), MAX_DIAGNOSE_SECONDS)
        return True

    def describe(self) -> Iterable[Metric]:
        """Return the family without its samples."""
        return [_family()]

    def collect(self) -> Iterable[Metric]:
        """Return the family; without samples where they are too old."""
        at, family = self._shown
        return [family] if monotonic() - at < FRESH_SECONDS else self.describe()


def _family() -> GaugeMetricFamily:
    return GaugeMetricFamily(
        "pgwake_findings",
        "What pgwake.diagnose() finds wrong, by check and severity; pgwake doctor says"
        " what to do. Nothing found has no series.",
        labels=["check", "severity"],
    )

"""Samples of the whole database, for the gauges and the status page."""

from datetime import UTC, datetime

from pgwake import queue
from pgwake.connection import Connection
from pgwake.history import INTERVAL_SECONDS, History
from pgwake.metrics import Metrics

SAMPLE_SECONDS = INTERVAL_SECONDS


class Sampler:
    """Asks what stands in the queues, and shows it.

    Attributes:
        history: The last samples.
    """

    def __init__(self, metrics: Metrics) -> None:
        self.history = History()
        self._metrics = metrics

    async def sample(self, connection: Connection) -> None:
        """Take one sample."""
        rows = await queue.get_queue_stats(connection)
        for row in rows:
            self._metrics.show_queue(row)
        self.history.add(datetime.now(UTC), rows)
        usage = await queue.notification_queue_usage(connection)
        self._metrics.notification_queue_usage.set(usage)

"""Samples of the whole database, for the metrics and the status page."""

from datetime import UTC, datetime

import structlog

from pgwake.database.connection import Connection
from pgwake.database.statements.stats import get_metrics
from pgwake.observe.history import INTERVAL_SECONDS, History
from pgwake.observe.metrics import Metrics

SAMPLE_SECONDS = INTERVAL_SECONDS
MAX_SAMPLE_SECONDS = 30.0
MAX_SHARE = 0.01  # of one of the server's cores, that all samplers together may take
DEADLINE = 2.0  # seconds that a sample may take
MAX_PAUSE = 240.0  # seconds until the next try after samples that took longer

log = structlog.get_logger()


class Sampler:
    """Asks what stands in the queues, and shows it.

    Attributes:
        history: The last samples.
        seconds: How long to wait until the next sample, at least: the more workers
            there are and the longer the server takes, the longer, from 0 to
            MAX_SAMPLE_SECONDS; after samples that got no answer up to MAX_PAUSE.
        worker_count: How many workers were live at the last sample.
    """

    def __init__(self, metrics: Metrics) -> None:
        self.history = History()
        self.seconds = 0.0
        self.worker_count = 1
        self._metrics = metrics

    async def sample(self, connection: Connection) -> bool:
        """Take one sample; whether the database has answered in time."""
        try:
            database, *queues = await get_metrics(connection, DEADLINE)
        except TimeoutError:
            log.warning("sample timed out", seconds=DEADLINE)
            # Many that ask in vain would be a load of its own.
            self.seconds = max(MAX_SAMPLE_SECONDS, min(2 * self.seconds, MAX_PAUSE))
            return False
        self.history.add(datetime.now(UTC), self._metrics.show(database, queues))
        self.worker_count = database["worker_count"]
        # All together sample once a second at most.
        wait: float = max(database["seconds"] / MAX_SHARE, 1.0) * self.worker_count
        self.seconds = min(wait, MAX_SAMPLE_SECONDS)
        return True

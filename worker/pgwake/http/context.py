"""What the HTTP application works with, made once for each process."""

from dataclasses import dataclass

from pgwake.http.events import EventFanout
from pgwake.http.pool import Pool
from pgwake.observe.health import Health
from pgwake.observe.history import History
from pgwake.observe.metrics import Metrics
from pgwake.settings import Settings


@dataclass(frozen=True, slots=True)
class ApiContext:
    """What the application works with.

    Attributes:
        settings: api_token and http_max_body are what it asks for.
        metrics: What /metrics shows.
        health: What /healthz and /readyz answer from.
        history: The last samples of the queues.
        pool: The API's connections to the database.
        fanout: Whose events /api/events tells.
    """

    settings: Settings
    metrics: Metrics
    health: Health
    history: History
    pool: Pool
    fanout: EventFanout

    @property
    def token(self) -> bytes | None:
        """What opens the API; None: nothing does."""
        secret = self.settings.api_token
        return None if secret is None else secret.get_secret_value().encode()

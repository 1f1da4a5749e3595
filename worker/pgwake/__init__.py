"""pgwake: a job queue in PostgreSQL, with an asyncio worker that sleeps until woken."""

from pgwake.errors import (
    ConfigurationError,
    InvalidScheduleError,
    LeaseLostError,
    PgwakeError,
)
from pgwake.job import Job, ParentResult
from pgwake.outcomes import Discard, Retry, Snooze
from pgwake.registry import Registry, job
from pgwake.schedule import next_ticks
from pgwake.settings import Settings
from pgwake.version import __version__
from pgwake.worker import Worker

__all__ = [
    "ConfigurationError",
    "Discard",
    "InvalidScheduleError",
    "Job",
    "LeaseLostError",
    "ParentResult",
    "PgwakeError",
    "Registry",
    "Retry",
    "Settings",
    "Snooze",
    "Worker",
    "__version__",
    "job",
    "next_ticks",
]

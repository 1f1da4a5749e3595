"""pgwake: a job queue in PostgreSQL, with an asyncio worker that sleeps until woken."""

from pgwake.defaults import default_queue, set_default_queue
from pgwake.errors import (
    ConfigurationError,
    DuplicateJobError,
    InvalidArgumentError,
    InvalidScheduleError,
    LeaseLostError,
    NoSuchJobError,
    PgwakeError,
    WaitTimeoutError,
)
from pgwake.job import Job, ParentResult
from pgwake.newjob import NewJob
from pgwake.outcomes import Discard, Retry, Snooze
from pgwake.producer import AsyncQueue, Queue, SyncQueue
from pgwake.registry import Registry, job
from pgwake.schedule import next_ticks
from pgwake.settings import Settings
from pgwake.task import Task
from pgwake.version import __version__
from pgwake.waiting import Ended
from pgwake.worker import Worker

__all__ = [
    "AsyncQueue",
    "ConfigurationError",
    "Discard",
    "DuplicateJobError",
    "Ended",
    "InvalidArgumentError",
    "InvalidScheduleError",
    "Job",
    "LeaseLostError",
    "NewJob",
    "NoSuchJobError",
    "ParentResult",
    "PgwakeError",
    "Queue",
    "Registry",
    "Retry",
    "Settings",
    "Snooze",
    "SyncQueue",
    "Task",
    "WaitTimeoutError",
    "Worker",
    "__version__",
    "default_queue",
    "job",
    "next_ticks",
    "set_default_queue",
]

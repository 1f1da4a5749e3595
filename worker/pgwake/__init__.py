"""pgwake: a job queue in PostgreSQL, with an asyncio worker that sleeps until woken."""

from pgwake.engine.worker import Worker
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
from pgwake.jobs.job import Job, ParentResult
from pgwake.jobs.outcomes import Discard, Retry, Snooze
from pgwake.jobs.registry import Registry, job
from pgwake.jobs.task import Task
from pgwake.produce.defaults import default_queue, set_default_queue
from pgwake.produce.new_job import NewJob
from pgwake.produce.queue import AsyncQueue, Queue, SyncQueue
from pgwake.produce.waiting import Ended
from pgwake.settings import Settings
from pgwake.ticks import next_ticks
from pgwake.version import __version__

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

"""pgwake: a job queue in PostgreSQL, with an asyncio worker that sleeps until woken.

A name is loaded when it is first asked for, so that who only enqueues loads no worker,
no HTTP and no command line. To add one: into the imports, which type checkers read,
into _HOMES and into __all__; a test compares the three.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from pgwake.version import __version__

if TYPE_CHECKING:
    from pgwake.engine.worker import Worker
    from pgwake.errors import (
        ConfigurationError,
        DuplicateJobError,
        InvalidArgumentError,
        InvalidScheduleError,
        LeaseLostError,
        NoSuchJobError,
        PgwakeError,
        QueueFullError,
        ResourceError,
        UnreadableValueError,
        WaitTimeoutError,
    )
    from pgwake.jobs.job import Job
    from pgwake.jobs.outcomes import Discard, Retry, Snooze
    from pgwake.jobs.registry import Registry, job, middleware, resource
    from pgwake.jobs.resource import injected
    from pgwake.jobs.service import ParentResult
    from pgwake.jobs.stepping import JobEnd
    from pgwake.jobs.steps import Suspend
    from pgwake.jobs.task import Task
    from pgwake.produce.defaults import default_queue, set_default_queue
    from pgwake.produce.new_job import NewJob
    from pgwake.produce.queue import AsyncQueue, Queue, SyncQueue
    from pgwake.produce.waiting import Ended
    from pgwake.settings import Settings
    from pgwake.ticks import next_ticks
else:
    # In here, since type checkers would take it for the home of any name at all.
    _HOMES = {
        "engine.worker": "Worker",
        "errors": "ConfigurationError DuplicateJobError InvalidArgumentError "
        "InvalidScheduleError LeaseLostError NoSuchJobError PgwakeError "
        "QueueFullError ResourceError UnreadableValueError WaitTimeoutError",
        "jobs.job": "Job",
        "jobs.service": "ParentResult",
        "jobs.stepping": "JobEnd",
        "jobs.outcomes": "Discard Retry Snooze",
        "jobs.registry": "Registry job middleware resource",
        "jobs.resource": "injected",
        "jobs.steps": "Suspend",
        "jobs.task": "Task",
        "produce.defaults": "default_queue set_default_queue",
        "produce.new_job": "NewJob",
        "produce.queue": "AsyncQueue Queue SyncQueue",
        "produce.waiting": "Ended",
        "settings": "Settings",
        "ticks": "next_ticks",
    }

    def __getattr__(name: str) -> object:
        for home, names in _HOMES.items():
            if name in names.split():
                value = getattr(import_module(f"{__name__}.{home}"), name)
                globals()[name] = value
                return value
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})


__all__ = [
    "AsyncQueue",
    "ConfigurationError",
    "Discard",
    "DuplicateJobError",
    "Ended",
    "InvalidArgumentError",
    "InvalidScheduleError",
    "Job",
    "JobEnd",
    "LeaseLostError",
    "NewJob",
    "NoSuchJobError",
    "ParentResult",
    "PgwakeError",
    "Queue",
    "QueueFullError",
    "Registry",
    "ResourceError",
    "Retry",
    "Settings",
    "Snooze",
    "Suspend",
    "SyncQueue",
    "Task",
    "UnreadableValueError",
    "WaitTimeoutError",
    "Worker",
    "__version__",
    "default_queue",
    "injected",
    "job",
    "middleware",
    "next_ticks",
    "resource",
    "set_default_queue",
]

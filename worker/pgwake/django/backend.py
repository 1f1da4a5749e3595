"""The backend of django.tasks: a task's kind is its path, and it runs as any handler.

What a task raises is an attempt that failed: it is READY again until its attempts are
used up. A worker that is killed costs no attempt, as of any job.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.db import connections
from django.utils import timezone
from django.utils.module_loading import import_string

from pgwake.django.config import alias as database_alias
from pgwake.django.task_handlers import handler_of
from pgwake.django.task_results import read_job
from pgwake.django.task_types import (
    AnyResult,
    AnyTask,
    BaseTaskBackend,
    InvalidTask,
    Task,
    TaskBase,
    TaskResultDoesNotExist,
    normalize_json,
    task_backends,
    task_enqueued,
)
from pgwake.errors import InvalidArgumentError, NoSuchJobError
from pgwake.jobs.registry import registry
from pgwake.produce.new_job import NewJob
from pgwake.produce.options import NAME_BYTES, OPTIONS
from pgwake.produce.queue import SyncQueue

# What an attempt goes by, of @task(options=...) and OPTIONS; and what a job has.
POLICY = ("timeout", "lease", "backoff_base", "backoff_cap", "backoff_jitter")
JOB = tuple(set(OPTIONS) - {"queue", "priority", "run_at", "delay"})


@dataclass(frozen=True, slots=True, kw_only=True)
class PgwakeTask(TaskBase):
    """A task with options of pgwake's.

    Attributes:
        options: Of the job: unique_key, on_conflict, concurrency_key, max_attempts,
            metadata, depends_on, on_parent_failure, webhook. And, in the decorator, of
            each attempt: timeout, lease, backoff_base, backoff_cap, backoff_jitter.
    """

    options: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        """Check it; from now on a worker of this process runs it."""
        Task.__post_init__(self)
        backend = self.get_backend()
        if isinstance(backend, PgwakeBackend):
            backend.register(self)

    def using(
        self,
        *,
        priority: int | None = None,
        queue_name: str | None = None,
        run_after: datetime | None = None,
        backend: str | None = None,
        **options: Any,
    ) -> "PgwakeTask":
        """Return the task with other defaults, options of the job among them."""
        changed: Any = Task.using(
            self,
            priority=priority,
            queue_name=queue_name,
            run_after=run_after,
            backend=backend,
        )
        renewed: PgwakeTask = replace(changed, options={**self.options, **options})
        return renewed


class PgwakeBackend(BaseTaskBackend):
    """Enqueues on Django's connection: in its atomic block, or at once.

    TASKS = {"default": {"BACKEND": "pgwake.django.PgwakeBackend", "OPTIONS": {...}}}:
    OPTIONS are those of PgwakeTask for tasks that have no own, but for keys.
    """

    task_class = PgwakeTask
    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        if wrong := _wrong(self.options):
            raise ImproperlyConfigured(f"TASKS[{alias!r}]: {wrong}")

    def validate_task(self, task: AnyTask) -> None:
        """Look whether a task can be a job.

        Raises:
            InvalidTask: It can't.
        """
        super().validate_task(task)
        if wrong := _wrong(_options(task)):
            raise InvalidTask(wrong)
        if len(task.module_path.encode()) > NAME_BYTES:
            raise InvalidTask(f"The task's path has more than {NAME_BYTES} bytes.")

    def register(self, task: AnyTask) -> None:
        """Have workers of this process run it: jobs of the kind that is its path."""
        if registry.get(task.module_path) is None:
            options = {**self.options, **_options(task)}
            policy = {
                name: options[name]
                for name in (*POLICY, "max_attempts")
                if name in options
            }
            register = registry.job(task.module_path, queue=task.queue_name, **policy)
            register(handler_of(task, self))

    def enqueue(  # type: ignore[override]
        self, task: AnyTask, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> AnyResult:
        """Add a job of a task.

        Raises:
            InvalidTask: An option can't be meant.
            TypeError: An argument is no JSON value.
            DuplicateJobError: Its unique key is taken, and on_conflict is raise.
            QueueFullError: The queue has a max_pending, and no room.
        """
        self.validate_task(task)
        payload: Any = normalize_json({"args": args, "kwargs": kwargs})
        given = {**self.options, **_options(task)}
        options: Any = {name: given[name] for name in JOB if name in given}
        run_after = task.run_after
        if run_after is not None and timezone.is_naive(run_after):
            run_after = timezone.make_aware(run_after)
        queue = SyncQueue(connections[database_alias()])
        try:
            job = NewJob(
                task.module_path,
                payload,
                queue=task.queue_name,
                priority=task.priority,
                run_at=run_after,
                **options,
            )
            job_id = queue.add(job)
        except InvalidArgumentError as error:
            raise InvalidTask(str(error)) from error
        # As it is there: with a unique key it may be the job of another call.
        result = read_job(task, queue.get_job(job_id), self.alias)
        task_enqueued.send(type(self), task_result=result)
        return result

    def get_result(self, result_id: str) -> AnyResult:
        """Return what has become of a task.

        Raises:
            TaskResultDoesNotExist: There is none, or it is past its retention.
        """
        try:
            row = SyncQueue(connections[database_alias()]).get_job(int(result_id))
            task = import_string(row["kind"])
        except (ValueError, NoSuchJobError, ImportError) as error:
            raise TaskResultDoesNotExist(result_id) from error
        if not isinstance(task, Task):
            raise TaskResultDoesNotExist(result_id)
        return read_job(task, row, self.alias)


def project_backends() -> list[PgwakeBackend]:
    """Return the backends in TASKS that are pgwake's."""
    return [one for one in task_backends.all() if isinstance(one, PgwakeBackend)]


def _wrong(options: Mapping[str, Any]) -> str | None:
    """Return what is wrong with the names of options."""
    known = sorted((*JOB, *POLICY))
    unknown = sorted(set(options).difference(known))
    return f"no option {unknown[0]!r}, use {', '.join(known)}" if unknown else None


def _options(task: AnyTask) -> Mapping[str, Any]:
    """Return a task's options; one that another backend has made has none."""
    options: Mapping[str, Any] = getattr(task, "options", {})
    return options

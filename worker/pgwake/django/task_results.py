"""What a job is to django.tasks: a result, with its errors and attempts."""

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.conf import settings
from django.utils import timezone

from pgwake.django.task_types import (
    AnyResult,
    AnyTask,
    TaskError,
    TaskResult,
    TaskResultStatus,
)
from pgwake.errors import PgwakeError

_STATUSES = {
    "waiting": TaskResultStatus.READY,
    "pending": TaskResultStatus.READY,
    "running": TaskResultStatus.RUNNING,
    "completed": TaskResultStatus.SUCCESSFUL,
    "failed": TaskResultStatus.FAILED,
    "cancelled": TaskResultStatus.FAILED,
}
_CLASS = re.compile(r"[^\W\d][\w.]*")
# What stands for a failure that is no exception of the task's.
_REASONS = {"failed": None, "timeout": "builtins.TimeoutError"}
_OTHER = f"{PgwakeError.__module__}.{PgwakeError.__qualname__}"


def new_result(
    task: AnyTask, args: list[Any], kwargs: dict[str, Any], **known: Any
) -> AnyResult:
    """Return the result of a call, READY unless more is known of it."""
    unknown: dict[str, Any] = {
        **dict.fromkeys(("enqueued_at", "started_at", "finished_at")),
        "id": "",
        "status": TaskResultStatus.READY,
        "last_attempted_at": None,
        "errors": [],
        "worker_ids": [],
    }
    return TaskResult(task=task, args=args, kwargs=kwargs, **{**unknown, **known})


def read_job(task: AnyTask, row: Mapping[str, Any], backend: str) -> AnyResult:
    """Return the result that a job is."""
    errors = row["errors"] or []
    workers = {error["attempt"]: error.get("worker") for error in errors}
    workers.setdefault(row["attempt"], row["claimed_by"])
    last = row["started_at"] or (errors[-1]["at"] if errors else None)
    is_later = row["run_at"] > row["created_at"] and not errors
    result = new_result(
        task.using(
            priority=row["priority"],
            queue_name=row["queue"],
            run_after=instant(row["run_at"]) if is_later else None,
            backend=backend,
        ),
        row["payload"].get("args", []),
        row["payload"].get("kwargs", {}),
        id=str(row["id"]),
        status=_STATUSES[row["status"]],
        enqueued_at=instant(row["created_at"]),
        started_at=instant(last),
        finished_at=instant(row["finished_at"]),
        last_attempted_at=instant(last),
        backend=backend,
        errors=[task_error(error) for error in errors],
        worker_ids=[str(workers.get(n) or "") for n in range(1, row["attempt"] + 1)],
    )
    object.__setattr__(result, "_return_value", row["result"])
    return result


def instant(value: str | datetime | None) -> datetime | None:
    """Return an instant as the project has them: aware, or in its time zone."""
    if isinstance(value, str):
        value = datetime.fromisoformat(value)
    if value is None or settings.USE_TZ:
        return value
    return timezone.make_naive(value)


def task_error(error: Mapping[str, Any]) -> TaskError:
    """Return an error of a job's, with the path of what was raised."""
    message = str(error.get("message", ""))
    path = _REASONS.get(error.get("reason", "failed"), _OTHER)
    if path is None:
        found = _CLASS.match(message)
        path = found[0] if found else _OTHER
        path = path if "." in path else f"builtins.{path}"
    trace = error.get("traceback")
    head = f"Traceback (most recent call last):\n{trace}\n" if trace else ""
    return TaskError(exception_class_path=path, traceback=f"{head}{message}\n")

"""How a worker runs a task of django.tasks: with its context and its signals."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from inspect import iscoroutinefunction
from typing import Any

from django.utils import timezone

from pgwake.django.task_results import instant, new_result, task_error
from pgwake.django.task_types import (
    AnyResult,
    AnyTask,
    BaseTaskBackend,
    TaskContext,
    TaskResultStatus,
    normalize_json,
    task_finished,
    task_started,
)
from pgwake.errors import PgwakeError
from pgwake.jobs.error_reports import ReportedError, describe, type_of
from pgwake.jobs.job import Job
from pgwake.jobs.outcomes import Outcome

FAILURES = (Exception, SystemExit)  # of the task; others stop it


def handler_of(task: AnyTask, backend: BaseTaskBackend) -> Callable[..., Any]:
    """Return what runs a task's jobs."""
    function, sender = task.func, type(backend)

    def arguments(result: AnyResult) -> list[Any]:
        context = [TaskContext(task_result=result)] if task.takes_context else []
        return [*context, *result.args]

    if iscoroutinefunction(function):

        async def arun(job: Job, args: list[Any], kwargs: dict[str, Any]) -> Any:
            with _reported():
                result = _running(task, backend.alias, job, args, kwargs)
                await task_started.asend(sender, task_result=result)
                try:
                    with _noted(result):
                        value = await function(*arguments(result), **result.kwargs)
                        _note(result, _return_value=normalize_json(value))
                finally:
                    if result.is_finished:
                        await task_finished.asend(sender, task_result=result)
                return result.return_value

        return arun

    def run(job: Job, args: list[Any], kwargs: dict[str, Any]) -> Any:
        with _reported():
            result = _running(task, backend.alias, job, args, kwargs)
            task_started.send(sender, task_result=result)
            try:
                with _noted(result):
                    value = function(*arguments(result), **result.kwargs)
                    _note(result, _return_value=normalize_json(value))
            finally:
                if result.is_finished:
                    task_finished.send(sender, task_result=result)
            return result.return_value

    return run


def _running(
    task: AnyTask, backend: str, job: Job, args: list[Any], kwargs: dict[str, Any]
) -> AnyResult:
    now = timezone.now()
    return new_result(
        replace(task, queue_name=job.queue),
        args,
        kwargs,
        id=str(job.id),
        status=TaskResultStatus.RUNNING,
        enqueued_at=instant(job.created_at),
        started_at=now,
        last_attempted_at=now,
        backend=backend,
        worker_ids=[""] * job.attempt,
    )


@contextmanager
def _noted(result: AnyResult) -> Iterator[None]:
    """Note in a result how the task ends."""
    try:
        yield
    except FAILURES as error:
        message, trace = describe(_report(error))
        result.errors.append(task_error({"message": message, "traceback": trace}))
        _note(result, status=TaskResultStatus.FAILED, finished_at=timezone.now())
        raise
    _note(result, status=TaskResultStatus.SUCCESSFUL, finished_at=timezone.now())


@contextmanager
def _reported() -> Iterator[None]:
    """Raise what is raised so that its class can be found again."""
    try:
        yield
    except FAILURES as error:
        report = _report(error)
        if report is error:
            raise
        raise report from error


def _report(error: BaseException) -> BaseException:
    if isinstance(error, Outcome | PgwakeError):  # which say what they mean
        return error
    message, trace = describe(error)
    module = type(error).__module__
    title = message if module == "builtins" else f"{module}.{message}"
    return ReportedError(title, trace, error_type=type_of(error))


def _note(result: AnyResult, **fields: Any) -> None:
    for name, value in fields.items():
        object.__setattr__(result, name, value)

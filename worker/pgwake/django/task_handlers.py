"""How a worker runs a task of django.tasks: with its context and its signals."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from inspect import iscoroutinefunction
from typing import Any

from django.utils import timezone

from pgwake.django.task_results import instant, new_result, task_error
from pgwake.django.task_types import (
    AnyResult,
    AnyTask,
    TaskContext,
    TaskResultStatus,
    task_finished,
    task_started,
)
from pgwake.errors import PgwakeError
from pgwake.jobs.handler_errors import ReportedError, describe, type_of
from pgwake.jobs.job import Job
from pgwake.jobs.outcomes import Outcome


def handler_of(task: AnyTask, backend: str) -> Callable[..., Any]:
    """Return what runs a task's jobs."""
    function = task.func

    def called(job: Job, args: list[Any], kwargs: dict[str, Any]) -> AnyResult:
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

    def arguments(result: AnyResult) -> list[Any]:
        context = [TaskContext(task_result=result)] if task.takes_context else []
        return [*context, *result.args]

    if iscoroutinefunction(function):

        async def arun(job: Job, args: list[Any], kwargs: dict[str, Any]) -> Any:
            result = called(job, args, kwargs)
            async with _asignals(result):
                value = await function(*arguments(result), **result.kwargs)
                object.__setattr__(result, "_return_value", value)
            return value

        return arun

    def run(job: Job, args: list[Any], kwargs: dict[str, Any]) -> Any:
        result = called(job, args, kwargs)
        with _signals(result):
            value = function(*arguments(result), **result.kwargs)
            object.__setattr__(result, "_return_value", value)
        return value

    return run


@contextmanager
def _signals(result: AnyResult) -> Iterator[None]:
    """Tell who listens that a task begins and ends."""
    sender = type(result.task.get_backend())
    task_started.send(sender, task_result=result)
    try:
        yield
    except Exception as error:
        told = _failed(result, error)
        task_finished.send(sender, task_result=result)
        if told is error:
            raise
        raise told from error
    _finish(result, TaskResultStatus.SUCCESSFUL)
    task_finished.send(sender, task_result=result)


@asynccontextmanager
async def _asignals(result: AnyResult) -> AsyncIterator[None]:
    sender = type(result.task.get_backend())
    await task_started.asend(sender, task_result=result)
    try:
        yield
    except Exception as error:
        told = _failed(result, error)
        await task_finished.asend(sender, task_result=result)
        if told is error:
            raise
        raise told from error
    _finish(result, TaskResultStatus.SUCCESSFUL)
    await task_finished.asend(sender, task_result=result)


def _finish(result: AnyResult, status: TaskResultStatus) -> None:
    object.__setattr__(result, "status", status)
    object.__setattr__(result, "finished_at", timezone.now())


def _failed(result: AnyResult, error: Exception) -> Exception:
    """Note a failure; return it so that its class can be found again."""
    _finish(result, TaskResultStatus.FAILED)
    told: Exception = error
    if not isinstance(error, Outcome | PgwakeError):  # which say what they mean
        message, trace = describe(error)
        module = type(error).__module__
        title = message if module == "builtins" else f"{module}.{message}"
        told = ReportedError(title, trace, error_type=type_of(error))
    message, trace = describe(told)
    result.errors.append(task_error({"message": message, "traceback": trace}))
    return told

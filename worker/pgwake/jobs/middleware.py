"""Middleware: generators around each call of a handler."""

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

from pgwake.errors import ConfigurationError
from pgwake.jobs.job import Job
from pgwake.jobs.resource import Values, call_of, name_of


@dataclass(frozen=True, slots=True, eq=False)
class Middleware:
    """A generator function that is called with each call of a handler.

    What comes before its yield happens before the handler; what the handler returned
    is the value of the yield, and what it raised is raised there. It may raise
    something else. What it swallows is raised all the same: a failed attempt never
    counts as done.

    Attributes:
        name: The function's, with its module, for messages.
        function: The function.
        needs: The types of the resources that it takes, by parameter.
        takes_job: Whether it takes a Job, and so no batch.
        is_async: Whether it runs on the loop; otherwise it runs where the handler does.
    """

    name: str
    function: Callable[..., Any]
    needs: Mapping[str, Any]
    takes_job: bool
    is_async: bool
    _job: str | None
    _jobs: str | None

    @classmethod
    def of(cls, function: Callable[..., Any]) -> Self:
        """Read it from a function.

        Raises:
            ConfigurationError: The function can't be middleware.
        """
        name = name_of(function)
        is_async = inspect.isasyncgenfunction(function)
        if not (is_async or inspect.isgeneratorfunction(function)):
            raise ConfigurationError(
                f"{name}: middleware is a function with one yield, where the handler is"
                " called"
            )
        job = jobs = None
        needs = {}
        for parameter in call_of(name, function).parameters.values():
            if parameter.annotation is parameter.empty:
                raise ConfigurationError(
                    f"{name}: annotate {parameter.name} with Job, list[Job], or the"
                    " type of a resource"
                )
            if parameter.annotation is Job:
                job = parameter.name
            elif parameter.annotation == list[Job]:
                jobs = parameter.name
            else:
                needs[parameter.name] = parameter.annotation
        return cls(name, function, needs, job is not None, is_async, job, jobs)

    def begin(self, jobs: Sequence[Job], values: Values) -> Any:
        """Return the generator for a call of a handler."""
        given = {name: values[type_] for name, type_ in self.needs.items()}
        if self._job is not None:
            (given[self._job],) = jobs
        if self._jobs is not None:
            given[self._jobs] = list(jobs)
        return self.function(**given)


def around(
    middleware: Sequence[Middleware],
    jobs: Sequence[Job],
    values: Values,
    call: Callable[[], Any],
) -> Callable[[], Any]:
    """Return a plain call with plain middleware around it, the first one outermost."""
    for one in reversed(middleware):
        call = partial(_around, one, jobs, values, call)
    return call


def _around(
    one: Middleware, jobs: Sequence[Job], values: Values, call: Callable[[], Any]
) -> Any:
    steps = one.begin(jobs, values)
    if _has_ended(steps.send, None):
        raise _misuse(one, "does not yield")
    try:
        value = call()
    except BaseException as error:
        if not _has_ended(steps.throw, error):
            raise _misuse(one, "yields twice") from error
        raise
    if not _has_ended(steps.send, value):
        raise _misuse(one, "yields twice")
    return value


def _has_ended(step: Callable[[Any], object], value: Any) -> bool:
    try:
        step(value)
    except StopIteration:
        return True
    finally:
        # It may be an error, whose traceback holds this frame.
        del value
    return False


def around_async(
    middleware: Sequence[Middleware],
    jobs: Sequence[Job],
    values: Values,
    call: Callable[[], Awaitable[Any]],
    read: Callable[[Any], Any],
) -> Callable[[], Awaitable[Any]]:
    """Return an async call with middleware of both kinds around it.

    Args:
        middleware: The first one is the outermost.
        jobs: The jobs of the call.
        values: What resources gave.
        call: The call.
        read: Makes of what the call returns what the handler did.
    """
    for one in reversed(middleware):
        call = partial(_around_async, one, jobs, values, call, read)
    return call


async def _around_async(
    one: Middleware,
    jobs: Sequence[Job],
    values: Values,
    call: Callable[[], Awaitable[Any]],
    read: Callable[[Any], Any],
) -> Any:
    steps = one.begin(jobs, values)
    send, throw = (
        (steps.asend, steps.athrow) if one.is_async else (steps.send, steps.throw)
    )
    if await _has_ended_async(one, send, None):
        raise _misuse(one, "does not yield")
    try:
        value = await call()
    except BaseException as error:
        if not await _has_ended_async(one, throw, error):
            raise _misuse(one, "yields twice") from error
        raise
    if not await _has_ended_async(one, send, read(value)):
        raise _misuse(one, "yields twice")
    return value


async def _has_ended_async(
    one: Middleware, step: Callable[[Any], Any], value: Any
) -> bool:
    try:
        if one.is_async:
            await step(value)
        else:
            step(value)
    except (StopIteration, StopAsyncIteration):
        return True
    finally:
        del value  # as in _has_ended
    return False


def _misuse(one: Middleware, problem: str) -> ConfigurationError:
    return ConfigurationError(f"{one.name} {problem}: middleware yields once")

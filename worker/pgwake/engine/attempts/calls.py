"""Calls of handlers: on the loop, in a thread, or in a process."""

import asyncio
import contextvars
import functools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Executor
from typing import Any

from pgwake import forks
from pgwake.jobs.attempt import Attempt
from pgwake.jobs.middleware import Middleware, around, around_async
from pgwake.jobs.registry import Handler
from pgwake.jobs.resource import Values
from pgwake.jsontext import loads
from pgwake.processes.pool import Processes


class Calls:
    """Calls handlers where they belong.

    Args:
        threads: Where plain functions run; one thread a slot. None: the loop's own.
        processes: Where process=True functions run.
        middlewares: What is around each call, the outermost first.
        values: What resources gave, by type; more may come.
    """

    def __init__(
        self,
        threads: Executor | None,
        processes: Processes,
        middlewares: Sequence[Middleware],
        values: Values,
    ) -> None:
        self._threads = threads
        self._processes = processes
        self._middlewares = middlewares
        self._values = values
        self._is_closing = False
        forks.begin()

    def close(self) -> None:
        """Let go of the threads that still run."""
        self._is_closing = True

    def one(self, handler: Handler, job: Attempt) -> Awaitable[Any]:
        """Call a handler with a job; what it returns."""
        arguments = handler.signature.bind(job.payload_text, job, self._values)
        return self._call(handler, arguments, (job,))

    async def apart(
        self, handler: Handler, job: Attempt, began: Callable[[Attempt, Handler], None]
    ) -> str | None:
        """Call a handler in a process; began is called when it begins."""
        if not self._middlewares:
            return await self._processes.run(handler, job, began)
        middlewares = [one for one in self._middlewares if one.is_async]
        call = functools.partial(self._processes.run, handler, job, began)
        result: str | None = await around_async(
            middlewares, (job,), self._values, call, _read
        )()
        return result

    def many(
        self, handler: Handler, arguments: Mapping[str, Any], jobs: Sequence[Attempt]
    ) -> Awaitable[Any]:
        """Call a batch handler; what it returns."""
        given = handler.signature.given(self._values)
        return self._call(handler, {**arguments, **given}, jobs)

    def _call(
        self, handler: Handler, arguments: Mapping[str, Any], jobs: Sequence[Attempt]
    ) -> Awaitable[Any]:
        if self._middlewares:
            return self._call_around(handler, arguments, jobs)
        # No coroutine of ours around an async handler's: each costs every job time.
        if handler.is_async:
            returned: Awaitable[Any] = handler.function(**arguments)
            return returned
        return self._in_thread(handler.function, arguments)

    def _call_around(
        self, handler: Handler, arguments: Mapping[str, Any], jobs: Sequence[Attempt]
    ) -> Awaitable[Any]:
        call = functools.partial(handler.function, **arguments)
        middlewares = self._middlewares
        if not handler.is_async:
            plain = [one for one in middlewares if not one.is_async]
            inner = around(plain, jobs, self._values, call)
            call = functools.partial(self._in_thread, inner, {})
            middlewares = [one for one in middlewares if one.is_async]
        return around_async(middlewares, jobs, self._values, call, _same)()

    async def _in_thread(
        self, function: Callable[..., Any], arguments: Mapping[str, Any]
    ) -> Any:
        """Run a plain function; wait for its thread to the end, whatever happens.

        A thread can't be cancelled. As long as it lives the job is held, so that nobody
        else runs it beside the thread; its handler can look at job.should_stop.
        """
        context = contextvars.copy_context()
        raised: list[BaseException] = []
        future = asyncio.get_running_loop().run_in_executor(
            self._threads,
            functools.partial(context.run, _in_thread, function, arguments, raised),
        )
        while not future.done():
            try:
                await asyncio.shield(future)
            except asyncio.CancelledError:
                if self._is_closing:
                    raise
        if raised:
            raise raised.pop()
        return future.result()


def _in_thread(
    function: Callable[..., Any],
    arguments: Mapping[str, Any],
    raised: list[BaseException],
) -> Any:
    """Call a function; what it raises goes into a list.

    A future can't carry StopIteration and GeneratorExit, and would be in the traceback
    of any other error: they would hold each other.
    """
    try:
        return function(**arguments)
    except BaseException as error:  # noqa: BLE001, it is raised again in the slot
        raised.append(error)
    finally:
        forks.leave_if_forked()


def _same(value: Any) -> Any:
    return value


def _read(result: str | None) -> Any:
    return None if result is None else loads(result)

"""Calls of handlers: on the loop, in a thread, or in a process."""

import asyncio
import contextvars
import functools
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Executor
from typing import Any

from pgwake import forks
from pgwake.jobs.attempt import Attempt
from pgwake.jobs.registry import Handler
from pgwake.processes.pool import Processes


class Calls:
    """Calls handlers where they belong.

    Args:
        threads: Where plain functions run; one thread a slot. None: the loop's own.
        processes: Where process=True functions run.
    """

    def __init__(self, threads: Executor | None, processes: Processes) -> None:
        self._threads = threads
        self._processes = processes
        self._is_closing = False
        forks.begin()

    def close(self) -> None:
        """Let go of the threads that still run."""
        self._is_closing = True

    def one(self, handler: Handler, job: Attempt) -> Awaitable[Any]:
        """Call a handler with a job; what it returns."""
        return self._call(handler, handler.signature.bind(job.payload_text, job))

    async def apart(
        self, handler: Handler, job: Attempt, began: Callable[[Attempt, Handler], None]
    ) -> str | None:
        """Call a handler in a process; began is called when it begins."""
        return await self._processes.run(handler, job, began)

    def many(self, handler: Handler, arguments: Mapping[str, Any]) -> Awaitable[Any]:
        """Call a batch handler; what it returns."""
        return self._call(handler, arguments)

    def _call(self, handler: Handler, arguments: Mapping[str, Any]) -> Awaitable[Any]:
        # No coroutine of ours around an async handler's: each costs every job time.
        if handler.is_async:
            returned: Awaitable[Any] = handler.function(**arguments)
            return returned
        return self._in_thread(handler, arguments)

    async def _in_thread(self, handler: Handler, arguments: Mapping[str, Any]) -> Any:
        """Run a plain function; wait for its thread to the end, whatever happens.

        A thread can't be cancelled. As long as it lives the job is held, so that nobody
        else runs it beside the thread; its handler can look at job.should_stop.
        """
        context = contextvars.copy_context()
        raised: list[BaseException] = []
        future = asyncio.get_running_loop().run_in_executor(
            self._threads,
            functools.partial(
                context.run, _in_thread, handler.function, arguments, raised
            ),
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

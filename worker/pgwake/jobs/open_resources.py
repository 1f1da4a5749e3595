"""The resources that this process has opened."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import partial
from types import TracebackType
from typing import Any, Self

import structlog

from pgwake.errors import ResourceError
from pgwake.jobs.resource import Opening, Resource

log = structlog.get_logger()


class OpenResources:
    """Opens resources, and closes them at its end, the last one first.

    All in the task that enters it: what a resource sets in its context is there for
    handlers, and it may have a task group open. Plain ones have a thread of their own.

    Args:
        seconds: How long each may take to open, and to close.
        given: What is there already, by type: these resources are not opened.

    Attributes:
        values: What they gave, by type.
    """

    def __init__(self, seconds: float, given: Mapping[Any, Any] = {}) -> None:
        self.values: dict[Any, Any] = dict(given)
        self._seconds = seconds
        self._given = given
        self._open: list[tuple[Resource, Opening]] = []
        self._thread = ThreadPoolExecutor(1, "pgwake-resources")

    async def __aenter__(self) -> Self:
        return self

    async def open(
        self, resources: Sequence[Resource], stopping: asyncio.Event | None = None
    ) -> bool:
        """Open those that are not open, in this order.

        Args:
            resources: The resources.
            stopping: Set when it is to be cut short.

        Returns:
            Whether they are open: not if it was cut short.

        Raises:
            ResourceError: One could not be opened, or took too long.
        """
        opened = {resource for resource, _ in self._open}
        for resource in resources:
            if resource in opened or resource.type in self._given:
                continue
            opening = resource.open(self.values)
            try:
                value = await self._step(
                    resource, "opened", partial(self._enter, opening), stopping
                )
            except ResourceError:
                if stopping is not None and stopping.is_set():
                    return False
                raise
            self._open.append((resource, opening))
            self.values[resource.type] = value
        return True

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        problem = None
        while self._open:
            resource, opening = self._open.pop()
            try:
                await self._step(resource, "closed", partial(self._leave, opening))
            except ResourceError as raised:
                log.exception("resource not closed", resource=resource.name)
                problem = raised
            except asyncio.CancelledError as raised:
                error = raised  # the others are closed all the same
        self._thread.shutdown(wait=False)
        # A task group in a resource cancels this task when it fails: that is the
        # problem, and no cancellation.
        if problem and (error is None or isinstance(error, asyncio.CancelledError)):
            raise problem
        if error is not None and kind is None:
            raise error

    async def _step(
        self,
        resource: Resource,
        what: str,
        step: Callable[[], Awaitable[Any]],
        stopping: asyncio.Event | None = None,
    ) -> Any:
        """Do one step in time; what it gives. In this task, so without wait_for().

        Raises:
            ResourceError: It failed, took too long, or was cut short.
        """
        with resource.told(what):
            limit = asyncio.timeout(self._seconds)
            watch = stopping and asyncio.create_task(_cut_short(limit, stopping))
            try:
                async with limit:
                    return await step()
            except TimeoutError:
                if not limit.expired():
                    raise
                raise TimeoutError(
                    f"over the {self._seconds:g} s of PGWAKE_RESOURCE_TIMEOUT"
                ) from None
            finally:
                if watch:
                    watch.cancel()

    async def _enter(self, opening: Opening) -> Any:
        if isinstance(opening, AbstractContextManager):
            return await self._in_thread(opening.__enter__)
        return await opening.__aenter__()

    async def _leave(self, opening: Opening) -> None:
        if isinstance(opening, AbstractContextManager):
            await self._in_thread(partial(opening.__exit__, None, None, None))
        else:
            await opening.__aexit__(None, None, None)

    def _in_thread(self, function: Callable[[], Any]) -> Awaitable[Any]:
        return asyncio.get_running_loop().run_in_executor(self._thread, function)


async def _cut_short(limit: asyncio.Timeout, stopping: asyncio.Event) -> None:
    await stopping.wait()
    limit.reschedule(asyncio.get_running_loop().time())

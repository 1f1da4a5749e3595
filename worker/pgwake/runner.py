"""Slots: run a job's handler, and decide what became of it."""

import asyncio
import contextvars
import functools
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from time import monotonic
from typing import Any

import structlog

from pgwake.errors import InvalidPayloadError, InvalidValueError
from pgwake.feed import Feed
from pgwake.finisher import Finisher
from pgwake.job import Job
from pgwake.jsontext import dumps
from pgwake.registry import Handler, Registry

log = structlog.get_logger()


class Runner:
    """Runs handlers in the slots of every queue.

    Args:
        registry: The handlers.
        finisher: Where ends go.
        threads: Where plain functions run; one thread a slot.
    """

    def __init__(
        self, registry: Registry, finisher: Finisher, threads: ThreadPoolExecutor
    ) -> None:
        self._registry = registry
        self._finisher = finisher
        self._threads = threads
        self.running: set[Job] = set()
        self._slots: set[asyncio.Task[None]] = set()

    def open(self, feed: Feed) -> None:
        """Start the slots of a feed; they end when it is closed."""
        for _ in range(feed.slots):
            task = asyncio.create_task(self._slot(feed))
            self._slots.add(task)
            task.add_done_callback(self._slots.discard)

    def abandon(self) -> set[Job]:
        """Leave the slots that do not end; the jobs that they still run."""
        for task in self._slots:
            task.cancel()
        if self.running:
            log.warning("jobs abandoned", jobs=sorted(job.id for job in self.running))
        return set(self.running)

    async def _slot(self, feed: Feed) -> None:
        """Run one job after the other until the feed is closed."""
        rounds = 0
        while (job := await feed.take()) is not None:
            try:
                await self._run(job)
            finally:
                feed.release_slot()
            rounds += 1
            # A handler that never waits would keep the loop from everybody else.
            if rounds % 16 == 0:
                await asyncio.sleep(0)
            while self._finisher.is_full:
                await asyncio.sleep(0.01)

    async def _run(self, job: Job) -> None:
        handler = self._registry.get(job.kind)
        if job.should_stop:  # before it has begun
            self._stopped(job, 0.0)
        elif handler is None:
            self._finisher.release(job, "unknown_kind")
        else:
            await self._attempt(job, handler)

    async def _attempt(self, job: Job, handler: Handler) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101, a slot is a task
        started = job.started_at = monotonic()
        timer = None
        if handler.timeout is not None:
            job.deadline = started + handler.timeout
            timer = asyncio.get_running_loop().call_at(
                asyncio.get_running_loop().time() + handler.timeout, job.stop, "timeout"
            )
        job.task = task
        self.running.add(job)
        result: str | None = None
        problem: BaseException | None = None
        try:
            value = await self._call(handler, job)
            if value is not None:
                result = dumps(value)
        except BaseException as error:
            if not job.should_stop and task.cancelling():
                raise  # the slot itself is being ended
            problem = error
        finally:
            job.task = None
            self.running.discard(job)
            if timer is not None:
                timer.cancel()
            if job.should_stop:
                while task.cancelling():
                    task.uncancel()

        seconds = monotonic() - started
        if job.should_stop:
            self._stopped(job, seconds, handler)
        elif problem is None:
            self._finisher.complete(job, result, seconds)
        else:
            bad_payload = isinstance(problem, InvalidPayloadError)
            self._finisher.fail(
                job,
                seconds,
                str(problem) if bad_payload else problem,
                reason="invalid"
                if isinstance(problem, InvalidPayloadError | InvalidValueError)
                else "failed",
                retryable=not bad_payload,
                max_attempts=handler.max_attempts,
            )

    def _stopped(
        self, job: Job, seconds: float, handler: Handler | None = None
    ) -> None:
        """End a job that was told to stop: never as done."""
        match job.stop_reason:
            case "timeout" if handler is not None:
                self._finisher.fail(
                    job,
                    seconds,
                    f"over its time limit of {handler.timeout:g} s",
                    reason="timeout",
                    max_attempts=handler.max_attempts,
                )
            case "cancelled":
                self._finisher.fail(job, seconds, "cancelled", reason="cancelled")
            case "shutdown":
                started = job.started_at is not None
                self._finisher.release(job, "shutdown" if started else "unstarted")
            case _:
                self._finisher.drop(job, seconds)

    async def _call(self, handler: Handler, job: Job) -> Any:
        arguments = handler.bind(job.payload_text, job)
        if handler.is_async:
            return await handler.function(**arguments)
        return await self._in_thread(handler, job, arguments)

    async def _in_thread(
        self, handler: Handler, job: Job, arguments: Mapping[str, Any]
    ) -> Any:
        """Run a plain function; wait for its thread to the end, whatever happens.

        A thread can't be cancelled. As long as it lives the job is held, so that nobody
        else runs it beside the thread; its handler can look at job.should_stop.
        """
        context = contextvars.copy_context()
        future = asyncio.get_running_loop().run_in_executor(
            self._threads,
            functools.partial(context.run, _in_thread, handler.function, arguments),
        )
        while True:
            try:
                return await asyncio.shield(future)
            except asyncio.CancelledError:
                if future.done() or job.stop_reason is None:
                    raise


def _in_thread(function: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
    try:
        return function(**arguments)
    except StopIteration as error:  # which a future can't carry: it would never be done
        raise RuntimeError("the handler raised StopIteration") from error

"""Slots: run the handlers of jobs."""

import asyncio
import functools
from collections.abc import Awaitable, Sequence
from contextlib import nullcontext, suppress
from time import monotonic
from typing import TYPE_CHECKING, Any

import structlog

from pgwake import forks
from pgwake.engine.attempts.calls import Calls
from pgwake.engine.attempts.deadlines import Deadlines
from pgwake.engine.attempts.verdicts import Verdicts
from pgwake.engine.finisher import Finisher
from pgwake.engine.ready_jobs import ReadyJobs
from pgwake.jobs.attempt import Attempt, BatchStopper
from pgwake.jobs.batch import Batch, ends_of
from pgwake.jobs.registry import Handler, Registry
from pgwake.jobs.service import Service
from pgwake.jsontext import dumps_result
from pgwake.observe import joblog
from pgwake.tracing import tracing

if TYPE_CHECKING:
    from pgwake.tracing.spans import RunSpan

log = structlog.get_logger()

# So many jobs of handlers that never wait are run, in all slots, before it is the turn
# of others: of the next claim, and of the ends of these.
MAX_AT_ONCE = 128


class Runner:
    """Runs handlers in the slots of every queue.

    Args:
        registry: The handlers.
        finisher: Where ends go.
        calls: How handlers are called.
        service: What handlers may ask for.
        worker: Whose runs get spans; None: none do.
        logs_starts: Whether each start is a line; asking the log cost 2 us a job.
    """

    def __init__(
        self,
        registry: Registry,
        finisher: Finisher,
        calls: Calls,
        service: Service,
        worker: str | None,
        *,
        logs_starts: bool = False,
    ) -> None:
        self._registry = registry
        self._finisher = finisher
        self._calls = calls
        self._service = service
        self._worker = worker
        self._logs_starts = logs_starts
        self._verdicts = Verdicts(finisher)
        self.running: set[Attempt] = set()
        self._deadlines = Deadlines(self.running)
        self._slots: set[asyncio.Task[None]] = set()
        self._is_closing = False

    def open(self, ready_jobs: ReadyJobs) -> None:
        """Let a queue start its slots; they end when it is closed."""
        ready_jobs.open_slot = functools.partial(self._open_slot, ready_jobs)

    def _open_slot(self, ready_jobs: ReadyJobs) -> None:
        slot = asyncio.create_task(self._slot(ready_jobs))
        self._slots.add(slot)
        slot.add_done_callback(functools.partial(self._slot_ended, ready_jobs))

    def _slot_ended(self, ready_jobs: ReadyJobs, slot: "asyncio.Task[None]") -> None:
        self._slots.discard(slot)
        broken = slot.cancelled() or slot.exception() is not None
        if broken and not self._is_closing:
            log.error("slot broken by a handler, replaced", queue=ready_jobs.queue)
            self._open_slot(ready_jobs)

    async def close(self, seconds: float) -> None:
        """End the slots; jobs whose handlers hold on for so long are left behind."""
        self._is_closing = True
        self._calls.close()
        if self.running:
            log.warning("jobs abandoned", jobs=sorted(job.id for job in self.running))
        for slot in self._slots:
            slot.cancel()
        if self._slots:
            await asyncio.wait(self._slots, timeout=seconds)

    async def _slot(self, ready_jobs: ReadyJobs) -> None:
        """Run one job after the other until its queue is closed."""
        slot = asyncio.current_task()
        assert slot is not None  # noqa: S101, it is one
        rounds = 0
        at_once = max(1, MAX_AT_ONCE // ready_jobs.slots)
        while (job := ready_jobs.take() or await ready_jobs.next()) is not None:
            try:
                if (work := self._begin(job, slot, ready_jobs)) is not None:
                    await work
            finally:
                ready_jobs.release_slot()
            if slot.cancelling() and not self._is_closing:
                await _calm(slot)
            rounds += 1
            # A handler that never waits would keep the loop from everybody else.
            if rounds % at_once == 0:
                await asyncio.sleep(0)
            while self._finisher.is_full:
                await asyncio.sleep(0.01)

    def _begin(
        self, job: Attempt, slot: "asyncio.Task[None]", ready_jobs: ReadyJobs
    ) -> Awaitable[None] | None:
        """Return the attempt, to be waited for; None if there is to be none."""
        handler = self._registry.get(job.kind)
        if job.should_stop:  # before it has begun
            self._verdicts.stopped(job)
        elif handler is None:
            ready_jobs.note_unknown_kind(job.kind)
            self._finisher.release(job, "unknown_kind")
        elif handler.batch is not None:
            return self._run_batch(job, handler, handler.batch, slot, ready_jobs)
        elif job.has_expired:
            # This process stood still meanwhile: it may be another's by now.
            self._finisher.release(job, "unstarted")
        elif tracing.is_loaded():
            return self._attempt_traced(job, handler, slot)
        else:
            return self._attempt(job, handler, slot)
        return None

    async def _attempt_traced(
        self, job: Attempt, handler: Handler, slot: "asyncio.Task[None]"
    ) -> None:
        with self._start_run((job,)) or nullcontext():
            await self._attempt(job, handler, slot)

    def _start_run(
        self, jobs: Sequence[Attempt], *, is_batch: bool = False
    ) -> "RunSpan | None":
        if self._worker is None:
            return None
        run = tracing.start_run(jobs, self._worker, is_batch=is_batch)
        if run is not None:
            for job in jobs:
                job.run = run
        return run

    async def _attempt(
        self, job: Attempt, handler: Handler, slot: "asyncio.Task[None]"
    ) -> None:
        job.begin(slot, self._service)
        self.running.add(job)
        if handler.location is None:
            self._limit(job, handler)
        if self._logs_starts:
            joblog.started(job)
        end: BaseException | str | None
        try:
            if handler.location is None:
                end = dumps_result(await self._calls.one(handler, job))
            else:
                end = await self._calls.apart(handler, job, self._began)
        except BaseException as error:
            if self._is_closing:
                raise
            end = error
        finally:
            forks.leave_if_forked()
            job.end()
            self.running.discard(job)
        self._verdicts.end(job, end)
        # This frame is in the error's traceback: they would hold each other, and the
        # job's payload, until a full garbage collection.
        del end

    def _began(self, job: Attempt, handler: Handler) -> None:
        """Let a job's time begin, where its process had to be started first."""
        job.started_at = monotonic()
        self._limit(job, handler)

    def _limit(self, job: Attempt, handler: Handler) -> None:
        timeout = job.timeout or handler.policy.timeout
        if timeout is not None and job.started_at is not None:
            job.deadline = job.started_at + timeout
            self._deadlines.add(job.deadline)

    async def _run_batch(
        self,
        first: Attempt,
        handler: Handler,
        batch: Batch,
        slot: "asyncio.Task[None]",
        ready_jobs: ReadyJobs,
    ) -> None:
        """Run a job with others of its kind; what can't run leaves the rest alone."""
        jobs, items = [], []
        for job in await ready_jobs.take_more(first, batch.size, batch.seconds):
            if job.should_stop:
                self._verdicts.stopped(job)
            elif job.has_expired:
                self._finisher.release(job, "unstarted")
            else:
                try:
                    items.append(batch.read(job))
                    jobs.append(job)
                except BaseException as error:  # noqa: BLE001, a user's validator
                    self._verdicts.raised(job, error)
        if jobs:
            arguments = batch.arguments(jobs, items)
            with self._start_run(jobs, is_batch=True) or nullcontext():
                await self._attempt_batch(jobs, handler, arguments, slot)

    async def _attempt_batch(
        self,
        jobs: Sequence[Attempt],
        handler: Handler,
        arguments: dict[str, Any],
        slot: "asyncio.Task[None]",
    ) -> None:
        going = set(jobs)
        self.running.update(jobs)
        for job in jobs:
            job.begin(BatchStopper(job, going, slot), self._service)
            self._limit(job, handler)
            if self._logs_starts:
                joblog.started(job)
        ends: Sequence[BaseException | str | None]
        try:
            ends = ends_of(await self._calls.many(handler, arguments, jobs), jobs)
        except BaseException as error:
            if self._is_closing:
                raise
            ends = [error] * len(jobs)
        finally:
            forks.leave_if_forked()
            for job in jobs:
                job.end()
            self.running.difference_update(jobs)

        for job, end in zip(jobs, ends, strict=True):
            self._verdicts.end(job, end)
        del ends, end  # as in _attempt


async def _calm(slot: "asyncio.Task[None]") -> None:
    """Take back what has been asked of a slot's task while it ran a handler.

    A handler that was stopped has had its cancellation. One that cancelled its own task
    and returned has not: it comes at the next wait, which is this one.
    """
    while slot.cancelling():
        slot.uncancel()
    with suppress(asyncio.CancelledError):
        await asyncio.sleep(0)

"""Slots: run a job's handler, and decide what became of it."""

import asyncio
import functools
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Any

import structlog

from pgwake import forks
from pgwake.engine.calls import Calls
from pgwake.engine.finisher import Finisher
from pgwake.engine.ready_jobs import ReadyJobs
from pgwake.errors import InvalidPayloadError, InvalidValueError
from pgwake.jobs.batch import Batch, Member, ends_of
from pgwake.jobs.job import Job, Service
from pgwake.jobs.outcomes import Discard, Retry, Snooze, outcome_of
from pgwake.jobs.problem import ReportedError
from pgwake.jobs.registry import Handler, Registry
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
    """

    def __init__(
        self,
        registry: Registry,
        finisher: Finisher,
        calls: Calls,
        service: Service,
        worker: str | None,
    ) -> None:
        self._registry = registry
        self._finisher = finisher
        self._calls = calls
        self._service = service
        self._worker = worker
        self.running: set[Job] = set()
        self._slots: set[asyncio.Task[None]] = set()
        self._is_closing = False
        self._look: asyncio.TimerHandle | None = None
        self._look_at = inf

    def open(self, ready_jobs: ReadyJobs) -> None:
        """Start the slots of a queue; they end when it is closed."""
        for _ in range(ready_jobs.slots):
            self._open_slot(ready_jobs)

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
        while (job := await ready_jobs.take()) is not None:
            try:
                await self._run(job, slot, ready_jobs)
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

    async def _run(
        self, job: Job, slot: "asyncio.Task[None]", ready_jobs: ReadyJobs
    ) -> None:
        handler = self._registry.get(job.kind)
        if job.should_stop:  # before it has begun
            self._stopped(job, 0.0)
        elif handler is None:
            ready_jobs.note_unknown_kind(job.kind)
            self._finisher.release(job, "unknown_kind")
        elif handler.batch is not None:
            await self._run_batch(job, handler, handler.batch, slot, ready_jobs)
        elif monotonic() - job.renewed_at > job.lease_seconds:
            # This process stood still meanwhile: it may be another's by now.
            self._finisher.release(job, "unstarted")
        elif not tracing.is_loaded() or (run := self._start_run((job,))) is None:
            await self._attempt(job, handler, slot)
        else:
            with run:
                await self._attempt(job, handler, slot)

    def _start_run(
        self, jobs: Sequence[Job], *, is_batch: bool = False
    ) -> "RunSpan | None":
        if self._worker is None:
            return None
        run = tracing.start_run(jobs, self._worker, is_batch=is_batch)
        if run is not None:
            for job in jobs:
                job.run = run
        return run

    async def _attempt(
        self, job: Job, handler: Handler, slot: "asyncio.Task[None]"
    ) -> None:
        started = job.started_at = monotonic()
        timeout = job.timeout or handler.policy.timeout
        if timeout is not None and handler.location is None:
            job.deadline = started + timeout
            self._look_by(job.deadline)
        job.task = slot
        job.service = self._service
        self.running.add(job)
        joblog.started(job)
        end: BaseException | str | None
        try:
            if handler.location is None:
                end = await self._calls.one(handler, job)
            else:
                end = await self._calls.apart(handler, job, self._began)
        except BaseException as error:
            if self._is_closing:
                raise
            end = error
        finally:
            forks.leave_if_forked()
            job.task = None
            self.running.discard(job)
        self._end(job, monotonic() - started, end)
        # This frame is in the error's traceback: they would hold each other, and the
        # job's payload, until a full garbage collection.
        del end

    def _end(self, job: Job, seconds: float, end: BaseException | str | None) -> None:
        """End an attempt: by what its handler raised, or with its result."""
        if job.completion is not None and job.completion.is_done:
            if end is not None:
                problem = end if isinstance(end, BaseException) else None
                self._finisher.ignore(job, problem)
        elif job.should_stop:
            self._stopped(job, seconds)
        elif isinstance(end, BaseException):
            self._raised(job, seconds, end)
        else:
            self._finisher.complete(job, end, seconds)

    def _began(self, job: Job, handler: Handler) -> None:
        """Let a job's time begin, where its process had to be started first."""
        job.started_at = monotonic()
        timeout = job.timeout or handler.policy.timeout
        if timeout is not None:
            job.deadline = job.started_at + timeout
            self._look_by(job.deadline)

    async def _run_batch(
        self,
        first: Job,
        handler: Handler,
        batch: Batch,
        slot: "asyncio.Task[None]",
        ready_jobs: ReadyJobs,
    ) -> None:
        """Run a job with others of its kind; what can't run leaves the rest alone."""
        jobs, items = [], []
        taken = await ready_jobs.take_more(first, batch.size, batch.seconds)
        started = monotonic()
        for job in taken:
            if job.should_stop:
                self._stopped(job, 0.0)
            elif started - job.renewed_at > job.lease_seconds:
                self._finisher.release(job, "unstarted")
            else:
                try:
                    items.append(batch.read(job))
                    jobs.append(job)
                except BaseException as error:  # noqa: BLE001, a user's validator
                    self._raised(job, 0.0, error)
        if jobs:
            arguments = batch.arguments(jobs, items)
            with self._start_run(jobs, is_batch=True) or nullcontext():
                await self._attempt_batch(jobs, handler, arguments, slot)

    async def _attempt_batch(
        self,
        jobs: Sequence[Job],
        handler: Handler,
        arguments: dict[str, Any],
        slot: "asyncio.Task[None]",
    ) -> None:
        started = monotonic()
        going = set(jobs)
        for job in jobs:
            self._began(job, handler)
            job.task = Member(job, going, slot)
            job.service = self._service
            joblog.started(job)
        self.running.update(jobs)
        ends: Sequence[BaseException | str | None]
        try:
            ends = ends_of(await self._calls.many(handler, arguments), jobs)
        except BaseException as error:
            if self._is_closing:
                raise
            ends = [error] * len(jobs)
        finally:
            forks.leave_if_forked()
            for job in jobs:
                job.task = None
            self.running.difference_update(jobs)

        seconds = monotonic() - started
        for job, end in zip(jobs, ends, strict=True):
            self._end(job, seconds, end)
        del ends, end  # as in _attempt

    def _look_by(self, deadline: float) -> None:
        """Look for late jobs no later than then: one timer for all that run.

        A timer a job would cost more than the rest of a short one.
        """
        if deadline >= self._look_at:
            return
        if self._look is not None:
            self._look.cancel()
        self._look_at = deadline
        self._look = asyncio.get_running_loop().call_later(
            deadline - monotonic(), self._stop_late
        )

    def _stop_late(self) -> None:
        self._look_at = inf
        now = monotonic()
        for job in list(self.running):
            if job.deadline is None or job.should_stop:
                continue
            if job.deadline <= now:
                job.stop("timeout")
            else:
                self._look_by(job.deadline)

    def _raised(self, job: Job, seconds: float, problem: BaseException) -> None:
        """End an attempt as its handler said, or as failed."""
        match outcome_of(problem):
            case Snooze() as snooze:
                self._finisher.release(job, "snooze", seconds, snooze.delay)
            case Retry() as retry:
                self._finisher.fail(job, seconds, retry, retry_in=retry.delay)
            case Discard() as discard:
                self._finisher.fail(
                    job, seconds, discard, reason="discarded", retryable=False
                )
            case InvalidPayloadError():
                self._finisher.fail(
                    job, seconds, str(problem), reason="invalid", retryable=False
                )
            case InvalidValueError() as invalid:
                self._finisher.fail(job, seconds, invalid, reason="invalid")
            case ReportedError() as report:
                self._finisher.fail(
                    job,
                    seconds,
                    report,
                    reason=report.reason,
                    retryable=report.retryable,
                    retry_in=report.retry_in,
                )
            case _:
                self._finisher.fail(job, seconds, problem)

    def _stopped(self, job: Job, seconds: float) -> None:
        """End a job that was told to stop: never as done."""
        match job.stop_reason:
            case "timeout" if job.started_at is not None and job.deadline is not None:
                limit = round(job.deadline - job.started_at, 3)
                self._finisher.fail(
                    job,
                    seconds,
                    f"timed out after {limit:g} s",
                    reason="timeout",
                )
            case "cancelled":
                self._finisher.fail(job, seconds, "cancelled", reason="cancelled")
            case "shutdown":
                started = job.started_at is not None
                reason = "shutdown" if started else "unstarted"
                self._finisher.release(job, reason, seconds)
            case _:
                self._finisher.drop(job, seconds)


async def _calm(slot: "asyncio.Task[None]") -> None:
    """Take back what has been asked of a slot's task while it ran a handler.

    A handler that was stopped has had its cancellation. One that cancelled its own task
    and returned has not: it comes at the next wait, which is this one.
    """
    while slot.cancelling():
        slot.uncancel()
    with suppress(asyncio.CancelledError):
        await asyncio.sleep(0)

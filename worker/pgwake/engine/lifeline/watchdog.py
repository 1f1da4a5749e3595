"""The watchdog: looks from its own thread whether the main loop and its jobs move."""

import asyncio
import os
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from time import monotonic

import structlog

from pgwake.database.session import Session
from pgwake.database.statements.finish import Failure, fail_jobs
from pgwake.engine.finisher import Finisher
from pgwake.engine.held_jobs import HeldJobs
from pgwake.engine.ready_jobs import ReadyJobs
from pgwake.errors import EXIT_HUNG
from pgwake.jobs.attempt import Attempt
from pgwake.observe.health import Health
from pgwake.observe.metrics import Metrics

log = structlog.get_logger()

BEAT_SECONDS = 0.25
LAG_SECONDS = 1.0  # a lag that is logged
BLOCKED_SECONDS = 5.0  # a lag after which unstarted jobs are given back


class Watchdog:
    """Measures the main loop's lag; ends the process over jobs that can't be stopped.

    Made on the main loop's thread, run on another.

    Args:
        session: Where to give jobs back, and to record those that can't be stopped.
        held_jobs: The jobs that the process holds.
        all_ready: Where unstarted jobs are taken back from when the main loop is
            blocked.
        finisher: Whose ends are written before the process is ended.
        metrics: Where the lag is shown.
        health: Where it is shown too.
        tell_main: Calls a function on the main loop.
        main_is_blocked: Told so, and when it is over.
        stop_claiming: Stops the claims; for the main loop to call.
        cancel_grace: Seconds that a job which is to stop may take.
        exit_seconds: How long the last statements may take when the process is ended.
        may_exit: End the process over a job that can't be stopped. An embedded worker
            must not: there the process is somebody else's.
    """

    def __init__(
        self,
        session: Session,
        *,
        held_jobs: HeldJobs,
        all_ready: Sequence[ReadyJobs],
        finisher: Finisher,
        metrics: Metrics,
        health: Health,
        tell_main: Callable[..., None],
        main_is_blocked: Callable[[bool], object],
        stop_claiming: Callable[[], None],
        cancel_grace: float,
        exit_seconds: float,
        may_exit: bool,
    ) -> None:
        self._session = session
        self._held_jobs = held_jobs
        self._all_ready = all_ready
        self._finisher = finisher
        self._metrics = metrics
        self._health = health
        self._tell_main = tell_main
        self._main_is_blocked = main_is_blocked
        self._stop_claiming = stop_claiming
        self._cancel_grace = cancel_grace
        self._exit_seconds = exit_seconds
        self._may_exit = may_exit
        self._main_thread = threading.get_ident()
        self._asked_at: float | None = None  # when the main loop was asked for a sign
        self._is_blocked = False
        self._hung: set[Attempt] = set()
        self._stop_by: float | None = None

    async def beat(self, fd: int) -> None:
        """Give the supervisor the beat, whatever else happens."""
        while True:
            with suppress(BrokenPipeError, BlockingIOError):
                os.write(fd, b"." if self._health.may_work else b"-")
            await asyncio.sleep(BEAT_SECONDS)

    def expect_stop(self, seconds: float) -> None:
        """End the process if its main loop is blocked then; from any thread."""
        self._stop_by = monotonic() + seconds

    async def run(self) -> None:
        """Watch for ever."""
        while True:
            await self._watch_main()
            await self._watch_jobs()
            await asyncio.sleep(BEAT_SECONDS)

    async def _watch_main(self) -> None:
        if self._asked_at is None:
            if self._is_blocked:
                self._is_blocked = False
                self._main_is_blocked(False)
            self._asked_at = monotonic()
            self._tell_main(self._answered)
            return
        lag = monotonic() - self._asked_at
        self._health.main_lag = lag
        if lag > LAG_SECONDS and not self._is_blocked:
            self._is_blocked = True
            self._main_is_blocked(True)
            log.warning(
                "main loop blocked",
                seconds=round(lag, 1),
                kinds=sorted({job.kind for job in self._running()}),
                where=_where(self._main_thread),
            )
        if (
            lag > LAG_SECONDS
            and self._may_exit
            and self._stop_by is not None
            and monotonic() > self._stop_by
        ):
            log.error("main loop blocked at the stop", seconds=round(lag, 1))
            await self._exit_over(set(), 0)
        if lag > BLOCKED_SECONDS:
            self._metrics.loop_lag.set(lag)
            await self._give_back(self._take_back(), "unstarted")

    def _answered(self) -> None:
        assert self._asked_at is not None  # noqa: S101
        lag = monotonic() - self._asked_at
        self._metrics.loop_lag.set(lag)
        self._health.main_lag = lag
        self._asked_at = None

    async def _watch_jobs(self) -> None:
        """Stop again what swallowed its cancellation; end the process over the rest."""
        now = monotonic()
        hung = set()
        for job in self._running():
            if job.stopped_at is not None:
                self._tell_main(_stop_again, job)
                late = now - job.stopped_at
                if late > self._cancel_grace and job.stop_reason != "shutdown":
                    hung.add(job)
            elif job.deadline is not None and now > job.deadline + self._cancel_grace:
                hung.add(job)  # on a main loop that is blocked
        for job in hung - self._hung:
            log.error(
                "job can't be stopped",
                job=job.id,
                kind=job.kind,
                reason=job.stop_reason or "timeout",
                seconds=round(now - (job.started_at or now), 1),
            )
        self._hung = hung
        if hung and self._may_exit:
            await self._exit_over(hung, EXIT_HUNG)

    async def _exit_over(self, hung: set[Attempt], code: int) -> None:
        failures = [
            Failure(
                job.id,
                job.lease_id,
                "could not be stopped; its process was ended",
                job.stop_reason or "timeout",
            )
            for job in sorted(hung, key=lambda job: job.id)
            if job.stop_reason != "lease_lost"
        ]
        try:
            async with asyncio.timeout(self._exit_seconds):
                await self._claims_have_stopped()
                unstarted = self._take_back()
                if failures:
                    await self._session.call(
                        lambda connection: fail_jobs(connection, failures)
                    )
                await self._finisher.copy_for_exit(self._session).write_all()
                await self._give_back(unstarted, "unstarted")
                running = [job for job in self._held_jobs if job not in hung]
                await self._give_back(running, "shutdown")
        finally:
            os._exit(code)

    async def _claims_have_stopped(self) -> None:
        """Keep a main loop that is alive from claiming what is about to go back."""
        answered = asyncio.Event()
        here = asyncio.get_running_loop()
        self._tell_main(self._stop_claiming)
        self._tell_main(here.call_soon_threadsafe, answered.set)
        with suppress(TimeoutError):
            async with asyncio.timeout(LAG_SECONDS):
                await answered.wait()

    async def _give_back(self, jobs: Sequence[Attempt], reason: str) -> None:
        if not jobs:
            return
        outcomes = await self._held_jobs.give_back(self._session, jobs, reason)
        for job, outcome in zip(jobs, outcomes, strict=True):
            self._tell_main(self._metrics.given_back, job, outcome, reason)
        log.warning("jobs given back", count=len(jobs), reason=reason)

    def _take_back(self) -> list[Attempt]:
        return [job for ready in self._all_ready for job in ready.take_back()]

    def _running(self) -> list[Attempt]:
        return [job for job in self._held_jobs if job.task is not None]


def _stop_again(job: Attempt) -> None:
    if job.task is not None and job.stop_reason is not None:
        job.stop(job.stop_reason)


def _where(thread: int) -> str:
    """The innermost line of a thread that is outside of the standard library."""
    frame = sys._current_frames().get(thread)  # noqa: SLF001, the only way to look
    lines = [
        f"{line.filename}:{line.lineno} in {line.name}"
        for line in traceback.extract_stack(frame)
        if "/pgwake/" not in line.filename and "/asyncio/" not in line.filename
    ]
    return lines[-1] if lines else "unknown"

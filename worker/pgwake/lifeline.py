"""The lifeline: a thread with its own loop, which a blocked main loop can't stop."""

import asyncio
import os
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import timedelta
from time import monotonic

import asyncpg
import structlog

from pgwake import queue
from pgwake.connection import Session
from pgwake.errors import EXIT_HUNG, PgwakeError
from pgwake.feed import Feed
from pgwake.http import Health, serve
from pgwake.job import Job, StopReason
from pgwake.listener import Listener
from pgwake.metrics import Metrics
from pgwake.queue import Failure
from pgwake.settings import Settings

log = structlog.get_logger()

BEAT_SECONDS = 0.25
LAG_SECONDS = 1.0  # a lag that is logged
BLOCKED_SECONDS = 5.0  # a lag after which unstarted jobs are given back
MAX_RENEWAL_SECONDS = 10.0
STOP_SECONDS = 3.0


def renewal_interval(lease_seconds: float) -> float:
    """Seconds after which a lease is renewed: a third of it, at most 10."""
    return min(lease_seconds / 3, MAX_RENEWAL_SECONDS)


class Lifeline:
    """Listens, renews leases, enforces time limits, serves HTTP and gives the beat.

    Args:
        settings: The worker's settings.
        name: The application_name of its sessions.
        holdings: The jobs that the process holds; exactly these are renewed.
        feeds: Where unstarted jobs are taken back from when the main loop is blocked.
        metrics: What HTTP shows.
        wake: Called on the main loop with a queue's name, or None for all.
        beat_fd: Where to write the beat for the supervisor; None: there is none.
        http_port: Where to serve; 0: nowhere.
        may_exit: End the process over a job that can't be stopped. An embedded worker
            must not: there the process is somebody else's.
    """

    def __init__(
        self,
        settings: Settings,
        name: str,
        *,
        holdings: set[Job],
        feeds: Sequence[Feed],
        metrics: Metrics,
        wake: Callable[[str | None], None],
        beat_fd: int | None,
        http_port: int,
        may_exit: bool,
    ) -> None:
        self._settings = settings
        self._name = name
        self._holdings = holdings
        self._feeds = feeds
        self._metrics = metrics
        self._wake = wake
        self._beat_fd = beat_fd
        self._http_port = http_port
        self._may_exit = may_exit
        self._main = asyncio.get_running_loop()
        self._main_thread = threading.get_ident()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._started: asyncio.Future[None] = self._main.create_future()
        self._ended: asyncio.Future[None] = self._main.create_future()
        self._asked_at: float | None = None  # when the main loop was asked for a sign
        self._warned = False
        self.health = Health(metrics)
        self._session: Session | None = None
        self._thread = threading.Thread(
            target=self._run, name="pgwake-lifeline", daemon=True
        )

    async def start(self) -> None:
        """Start the thread; returns when it is at work.

        Raises:
            ConfigurationError: The HTTP port can't be had.
        """
        self._ended.add_done_callback(lambda ended: ended.exception())
        self._thread.start()
        await self._started

    async def ended(self) -> None:
        """Wait for the thread's end; raises what ended it."""
        await asyncio.shield(self._ended)

    async def stop(self) -> None:
        """End the thread, after everything else: renewal goes on until then."""
        if self._loop is not None and self._task is not None and not self._ended.done():
            self._loop.call_soon_threadsafe(self._task.cancel)
        with suppress(TimeoutError, PgwakeError):
            async with asyncio.timeout(STOP_SECONDS):
                await self.ended()

    def _run(self) -> None:
        try:
            asyncio.run(self._work())
        except BaseException as error:  # noqa: BLE001, it is handed to the main loop
            self._tell_main(_settle, self._started, error)
            self._tell_main(_settle, self._ended, error)
        else:
            self._tell_main(_settle, self._ended, None)

    async def _work(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        settings = self._settings
        self._session = Session(
            settings.dsn, self._name, "lifeline", settings.query_timeout
        )
        listener = Listener(
            settings.listen_dsn,
            self._name,
            timeout=settings.query_timeout,
            metrics=self._metrics,
            wake=lambda name: self._tell_main(self._wake, name),
        )
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(listener.run())
                tasks.create_task(self._renew())
                tasks.create_task(self._watch())
                if self._http_port:
                    tasks.create_task(
                        serve(self.health, settings.http_host, self._http_port)
                    )
                self._tell_main(_settle, self._started, None)
        except asyncio.CancelledError:
            pass
        except BaseExceptionGroup as group:
            raise group.exceptions[0] from None
        finally:
            self._session.close()

    def _tell_main(self, function: Callable[..., object], *arguments: object) -> None:
        if not self._main.is_closed():
            self._main.call_soon_threadsafe(function, *arguments)

    def _tell_job(self, job: Job, reason: StopReason) -> None:
        if job.stop_reason is None:
            self._tell_main(job.stop, reason)

    # renewal

    async def _renew(self) -> None:
        assert self._session is not None  # noqa: S101
        lease = self._settings.lease and timedelta(seconds=self._settings.lease)
        while True:
            await asyncio.sleep(BEAT_SECONDS)
            now = monotonic()
            due = sorted(
                (
                    job
                    for job in list(self._holdings)
                    if now - job.renewed_at >= renewal_interval(job.lease_seconds)
                    and job.stop_reason != "lease_lost"
                ),
                key=lambda job: job.id,
            )
            for part in _parts(due, 1000):
                await self._renew_part(part, lease or None)

    async def _renew_part(self, jobs: Sequence[Job], lease: timedelta | None) -> None:
        assert self._session is not None  # noqa: S101
        asked_at = monotonic()
        try:
            outcomes = await self._session.call(
                lambda connection: queue.extend_leases(
                    connection,
                    [job.id for job in jobs],
                    [job.lease_id for job in jobs],
                    lease,
                )
            )
        except asyncpg.PostgresError as error:
            log.error("renewal refused", error=str(error), jobs=len(jobs))
            return
        for job, outcome in zip(jobs, outcomes, strict=True):
            job.renewed_at = asked_at
            if outcome == "cancel_requested":
                self._tell_job(job, "cancelled")
            elif outcome != "extended" and job in self._holdings:
                self._tell_job(job, "lease_lost")

    # the beat, the main loop, and jobs that can't be stopped

    async def _watch(self) -> None:
        while True:
            if self._beat_fd is not None:
                with suppress(BrokenPipeError, BlockingIOError):
                    os.write(self._beat_fd, b".")
            await self._watch_main()
            await self._watch_jobs()
            await asyncio.sleep(BEAT_SECONDS)

    async def _watch_main(self) -> None:
        if self._asked_at is None:
            self._asked_at = monotonic()
            self._tell_main(self._answered)
            return
        lag = monotonic() - self._asked_at
        self.health.main_lag = lag
        if lag > LAG_SECONDS and not self._warned:
            self._warned = True
            log.warning(
                "main loop blocked",
                seconds=round(lag, 1),
                kinds=sorted({job.kind for job in self._running()}),
                where=_where(self._main_thread),
            )
        if lag > BLOCKED_SECONDS:
            self._metrics.loop_lag.set(lag)
            await self._give_back(
                [job for feed in self._feeds for job in feed.take_back()], "unstarted"
            )

    def _answered(self) -> None:
        assert self._asked_at is not None  # noqa: S101
        lag = monotonic() - self._asked_at
        self._metrics.loop_lag.set(lag)
        self.health.main_lag = lag
        self._warned = False
        self._asked_at = None

    async def _watch_jobs(self) -> None:
        """Stop again what swallowed its cancellation; end the process over the rest."""
        now = monotonic()
        grace = self._settings.cancel_grace
        hung = []
        for job in self._running():
            if job.stopped_at is not None:
                self._tell_main(_stop_again, job)
                if now > job.stopped_at + grace and job.stop_reason != "shutdown":
                    hung.append(job)
            elif job.deadline is not None and now > job.deadline + grace:
                hung.append(job)  # on a main loop that is blocked
        if hung:
            for job in hung:
                log.error(
                    "job can't be stopped",
                    job=job.id,
                    kind=job.kind,
                    reason=job.stop_reason or "timeout",
                    seconds=round(now - (job.started_at or now), 1),
                )
            if self._may_exit:
                await self._exit_over(hung)

    async def _exit_over(self, hung: Sequence[Job]) -> None:
        assert self._session is not None  # noqa: S101
        failures = [
            Failure(
                job.id,
                job.lease_id,
                "could not be stopped; its process was ended",
                job.stop_reason or "timeout",
            )
            for job in hung
            if job.stop_reason != "lease_lost"
        ]
        try:
            async with asyncio.timeout(self._settings.query_timeout):
                if failures:
                    await self._session.call(
                        lambda connection: queue.fail_jobs(connection, failures)
                    )
                others = [job for job in list(self._holdings) if job not in hung]
                begun = [job for job in others if job.started_at is not None]
                await self._give_back(begun, "shutdown")
                await self._give_back(
                    [j for j in others if j not in begun], "unstarted"
                )
        finally:
            os._exit(EXIT_HUNG)

    async def _give_back(self, jobs: Sequence[Job], reason: str) -> None:
        assert self._session is not None  # noqa: S101
        if not jobs:
            return
        await self._session.call(
            lambda connection: queue.release_jobs(
                connection, [j.id for j in jobs], [j.lease_id for j in jobs], reason
            )
        )
        self._holdings.difference_update(jobs)
        log.warning("jobs given back", count=len(jobs), reason=reason)

    def _running(self) -> list[Job]:
        return [job for job in list(self._holdings) if job.task is not None]


def _stop_again(job: Job) -> None:
    if job.task is not None and job.stop_reason is not None:
        job.stop(job.stop_reason)


def _settle(future: "asyncio.Future[None]", error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(None)
    elif isinstance(error, Exception):
        future.set_exception(error)
    else:
        future.set_exception(PgwakeError(f"the lifeline ended: {error!r}"))


def _parts(jobs: Sequence[Job], size: int) -> Iterable[Sequence[Job]]:
    return (jobs[start : start + size] for start in range(0, len(jobs), size))


def _where(thread: int) -> str:
    """The innermost line of a thread that is outside of the standard library."""
    frame = sys._current_frames().get(thread)  # noqa: SLF001, the only way to look
    lines = [
        f"{line.filename}:{line.lineno} in {line.name}"
        for line in traceback.extract_stack(frame)
        if "/pgwake/" not in line.filename and "/asyncio/" not in line.filename
    ]
    return lines[-1] if lines else "unknown"

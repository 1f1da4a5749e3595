"""Runs due jobs one after the other in this process, by the worker's own runner."""

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import Any, NoReturn

from pgwake.database.session import Session
from pgwake.database.statements import completion
from pgwake.database.statements import testing as queue
from pgwake.engine.calls import Calls
from pgwake.engine.finisher import End, Finisher
from pgwake.engine.progress import Reports
from pgwake.engine.ready_jobs import Feed
from pgwake.engine.runner import Runner
from pgwake.engine.scheduler import Scheduler
from pgwake.engine.service import Service
from pgwake.errors import ConfigurationError
from pgwake.jobs.job import Isolation, Job, ParentResult
from pgwake.jobs.outcomes import Outcome
from pgwake.jobs.registry import Registry
from pgwake.observe.joblog import JobLog
from pgwake.observe.metrics import Metrics
from pgwake.processes.pool import Processes
from pgwake.produce.defaults import default_queue, worker_default
from pgwake.produce.queue import Queue
from pgwake.settings import Settings
from pgwake.testing.connections import Borrowed

WORKER = "pgwake.testing"
TIMEOUT = 60.0  # seconds for each statement

_OURS = str(Path(__file__).parents[1])


@dataclass(frozen=True, slots=True)
class Run:
    """One attempt of a job that run_due() has run.

    Attributes:
        id: The job's id.
        kind: Its kind.
        queue: Its queue.
        payload: Its payload.
        attempt: Which attempt it was, from 1.
        status: What the job is now: completed, failed, cancelled, or, if it is to run
            again, pending or waiting.
        result: What the handler returned, as it comes out of the database; or None.
        error: Why the attempt failed, as the job's errors say; None: it did not.
        exception: What the handler raised to that end, Retry and Discard too.
    """

    id: int
    kind: str
    queue: str
    payload: dict[str, Any]
    attempt: int
    status: str
    result: Any
    error: str | None
    exception: BaseException | None


class _Recorder(Finisher):
    """A finisher that tells when its one job has an end, and remembers its failure."""

    def __init__(self, session: Session, reports: Reports) -> None:
        super().__init__(session, set(), Metrics([]), JobLog(1_000_000), reports)
        self.has_end = asyncio.Event()
        self.failure: BaseException | str | None = None

    def forget(self) -> None:
        """Get ready for another job."""
        self.failure = None
        self.has_end.clear()

    def fail(
        self,
        job: Job,
        seconds: float,
        error: BaseException | str,
        *,
        reason: str = "failed",
        retryable: bool = True,
        retry_in: timedelta | None = None,
    ) -> None:
        self.failure = error
        super().fail(
            job,
            seconds,
            error,
            reason=reason,
            retryable=retryable,
            retry_in=retry_in,
        )

    def release(
        self,
        job: Job,
        reason: str,
        seconds: float = 0.0,
        delay: timedelta | None = None,
        error: str | None = None,
    ) -> None:
        if reason == "unknown_kind":
            self.failure = (
                f"kind {job.kind!r} has no handler here: import the module that has it,"
                " or override the fixture pgwake_registry"
            )
        super().release(job, reason, seconds, delay, error)

    def _put(self, end: End) -> None:
        super()._put(end)
        self.has_end.set()

    def _ended(self, end: End, outcome: str) -> None:
        super()._ended(end, outcome)
        self.has_end.set()


class _Borrowing:
    """What handlers may ask for whose jobs are in somebody's open transaction."""

    def __init__(self, session: Borrowed, reports: Reports) -> None:
        self.loop = asyncio.get_running_loop()
        self._session = session
        self._reports = reports

    def report(self, job: Job, text: str | None) -> None:
        self._reports.put(job, text)

    def transaction(self, job: Job, isolation: Isolation) -> NoReturn:
        raise ConfigurationError(
            f"job {job.id} is in the test's own transaction, which another connection "
            f"can't complete ({isolation}): commit it, and run it without on()"
        )

    async def parent_results(self, job: Job) -> list[ParentResult]:
        rows = await self._session.call(lambda c: completion.parent_results(c, job.id))
        return [ParentResult(*row) for row in rows]

    def close(self) -> None:
        """Nothing here is ours."""


class Rehearsal:
    """Claims one due job at a time, runs it, and writes its end.

    Args:
        session: What to work on.
        registry: The handlers.
        threads: Where plain functions run.
        raises: Raise what fails an attempt, once its end is written.
    """

    def __init__(
        self,
        session: Session,
        registry: Registry,
        threads: ThreadPoolExecutor,
        *,
        raises: bool,
    ) -> None:
        self._session = session
        self._raises = raises
        reports = Reports(session)
        self._recorder = _Recorder(session, reports)
        self._service: Service | _Borrowing = (
            _Borrowing(session, reports)
            if isinstance(session, Borrowed)
            else Service(session.dsn, WORKER, TIMEOUT, 1, self._recorder, reports)
        )
        self._processes = Processes(Settings.load(), WORKER, has_own_log=False)
        self._runner = Runner(
            registry,
            self._recorder,
            Calls(threads, self._processes),
            self._service,
            WORKER,
        )
        self._scheduler = Scheduler(session, Metrics([]))
        self._feed = Feed("", 1)

    async def run(self, limit: int) -> list[Run]:
        """Run what is due, and what that enqueues, until nothing is.

        Raises:
            AssertionError: Another job is due after so many.
        """
        async with AsyncExitStack() as stack:
            # What handlers enqueue goes where their job is from.
            if isinstance(self._session, Borrowed):
                stack.enter_context(default_queue(Queue(self._session.given)))  # type: ignore[call-overload]  # any that it knows
            else:
                await stack.enter_async_context(worker_default(self._session.dsn))
            return await self._run_all(limit)

    async def _run_all(self, limit: int) -> list[Run]:
        runs: list[Run] = []
        self._runner.open(self._feed)
        try:
            while (job := await self._claim()) is not None:
                if len(runs) == limit:
                    kinds = ", ".join(sorted({run.kind for run in runs[-10:]}))
                    raise AssertionError(
                        f"{limit} jobs have run, and job {job.id} ({job.kind!r}) is due"
                        f" all the same: the last were of {kinds}. Do they enqueue each"
                        " other without end? If not: run_due(limit=...)"
                    )
                runs.append(await self._run(job))
        finally:
            self._feed.close()
            await self._runner.close(1.0)
            await self._processes.close()
            self._service.close()
        return runs

    async def _claim(self) -> Job | None:
        await self._scheduler.fire_due()
        for name in await self._session.call(queue.queues_to_claim):
            for suspects in (False, True):
                asked_at = monotonic()
                claimed = await self._session.call(
                    lambda c, name=name, suspects=suspects: queue.claim_one(  # type: ignore[misc]
                        c, name, WORKER, suspects=suspects
                    )
                )
                if claimed is not None:
                    row, claimed_at = claimed
                    return Job(row, claimed_at, asked_at)  # type: ignore[arg-type]  # unpacked alike
        return None

    async def _run(self, job: Job) -> Run:
        recorder, session = self._recorder, self._session
        recorder.forget()
        if isinstance(session, Borrowed):
            await session.before_handler()
        self._feed.put([job])
        await recorder.has_end.wait()
        if isinstance(session, Borrowed):
            await session.after_handler()
        await recorder.write_all()
        failure = recorder.failure
        if self._raises and failure is not None and not isinstance(failure, Outcome):
            raise _told(job, failure)
        status, result, message = await session.call(
            lambda c: queue.end_of_attempt(c, job.id)
        )
        return Run(
            id=job.id,
            kind=job.kind,
            queue=job.queue,
            payload=job.payload,
            attempt=job.attempt,
            status=status,
            result=None if result is None else json.loads(result),
            error=message if isinstance(failure, BaseException) else failure,
            exception=failure if isinstance(failure, BaseException) else None,
        )


def _told(job: Job, failure: BaseException | str) -> BaseException:
    """Return what to raise for it: what the handler raised, from where it did."""
    what = f"job {job.id} ({job.kind!r}, attempt {job.attempt})"
    if isinstance(failure, str):
        return AssertionError(f"{what}: {failure}")
    failure.add_note(f"raised by {what}")
    trace: TracebackType | None = failure.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_OURS):
        trace = trace.tb_next
    return failure.with_traceback(trace)

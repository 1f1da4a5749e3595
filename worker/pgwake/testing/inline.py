"""Runs due jobs one after the other in this process, by the worker's own runner."""

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from contextlib import AsyncExitStack, nullcontext
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import Any, NoReturn, cast

from pgwake.database.connection import Connection
from pgwake.database.session import Session
from pgwake.database.statements import testing as queue
from pgwake.engine.attempts.calls import Calls
from pgwake.engine.attempts.runner import Runner
from pgwake.engine.ends import End, EndReporter, Release
from pgwake.engine.finisher import Finisher
from pgwake.engine.held_jobs import HeldJobs
from pgwake.engine.job_services import JobServices
from pgwake.engine.progress import ProgressReports
from pgwake.engine.ready_jobs import ReadyJobs
from pgwake.engine.scheduler import Scheduler
from pgwake.engine.step_recorder import StepRecorder
from pgwake.errors import ConfigurationError
from pgwake.jobs.attempt import Attempt
from pgwake.jobs.error_reports import ReportedError
from pgwake.jobs.open_resources import OpenResources
from pgwake.jobs.outcomes import Outcome
from pgwake.jobs.registry import Registry
from pgwake.jobs.service import Isolation
from pgwake.observe.joblog import JobLog
from pgwake.observe.metrics import Metrics
from pgwake.processes.pool import Processes
from pgwake.produce.defaults import default_queue, worker_default
from pgwake.produce.queue import Queue
from pgwake.settings import Settings
from pgwake.testing.connections import BorrowedSession
from pgwake.testing.databases import TIMEOUT, WORKER

_OURS = str(Path(__file__).parents[1])


@dataclass(frozen=True, slots=True)
class Run:
    """One attempt of a job that run_due() has run.

    Attributes:
        id, kind, queue, payload: The job's.
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


class _Recorder(EndReporter):
    """Tells when its one job has an end, and remembers its failure."""

    def __init__(self) -> None:
        super().__init__(Metrics([]), JobLog(1_000_000))
        self.has_end = asyncio.Event()
        self.failure: BaseException | str | None = None

    def forget(self) -> None:
        """Get ready for another job."""
        self.failure = None
        self.has_end.clear()

    def arrived(self, end: End, error: BaseException | str | None) -> None:
        super().arrived(end, error)
        if error is not None:
            # A framework may have told it in its own way.
            cause = isinstance(error, ReportedError) and error.__cause__
            self.failure = cause or error
        elif isinstance(end.what, Release) and end.what.reason == "unknown_kind":
            self.failure = (
                f"kind {end.job.kind!r} has no handler here: import the module that has"
                " it, or override the fixture pgwake_registry"
            )
        self.has_end.set()

    def ended(self, ends: Sequence[End], outcomes: Sequence[str]) -> None:
        super().ended(ends, outcomes)
        self.has_end.set()


class _BorrowedService(JobServices):
    """What handlers may ask for whose jobs are in somebody's open transaction."""

    def __init__(
        self, session: BorrowedSession, finisher: Finisher, reports: ProgressReports
    ) -> None:
        super().__init__("", WORKER, TIMEOUT, 0, finisher, reports)
        self._session = session
        self._recorder = StepRecorder(session)

    def transaction(self, job: Attempt, isolation: Isolation) -> NoReturn:
        raise ConfigurationError(
            f"job {job.id} is in the test's own transaction, which another connection "
            f"can't complete ({isolation}): commit it, and run it without on()"
        )

    def step_transaction(
        self, job: Attempt, name: str, isolation: Isolation
    ) -> NoReturn:
        del name
        self.transaction(job, isolation)


class InlineRunner:
    """Claims one due job at a time, runs it, and writes its end.

    Args:
        session: What to work on.
        registry: The handlers.
        resources: Values in place of resources, by type.
        threads: Where plain functions run; None: in the event loop's.
        raises: Raise what fails an attempt, once its end is written.
    """

    def __init__(
        self,
        session: Session,
        registry: Registry,
        resources: Mapping[Any, Any],
        threads: Executor | None,
        *,
        raises: bool,
    ) -> None:
        self._session = session
        self._registry = registry
        self._raises = raises
        reports = ProgressReports(session)
        self._recorder = _Recorder()
        self._finisher = Finisher(session, HeldJobs(), self._recorder, reports)
        self._service = (
            _BorrowedService(session, self._finisher, reports)
            if isinstance(session, BorrowedSession)
            else JobServices(session.dsn, WORKER, TIMEOUT, 1, self._finisher, reports)
        )
        settings = Settings.load()
        parts = registry.child_parts
        self._processes = Processes(settings, WORKER, parts, has_own_log=False)
        self._resources = OpenResources(settings.resource_timeout, resources)
        calls = Calls(
            threads, self._processes, registry.middlewares, self._resources.values
        )
        self._runner = Runner(registry, self._finisher, calls, self._service, WORKER)
        self._scheduler = Scheduler(session, Metrics([]))
        self._ready_jobs = ReadyJobs("", 1)

    async def run(self, limit: int) -> list[Run]:
        """Run what is due, and what that enqueues, until nothing is.

        Raises:
            AssertionError: Another job is due after so many.
        """
        runs: list[Run] = []
        async with AsyncExitStack() as stack:
            # What handlers enqueue goes where their job is from.
            if isinstance(self._session, BorrowedSession):
                stack.enter_context(default_queue(Queue(self._session.adapter)))
            else:
                await stack.enter_async_context(worker_default(self._session.dsn))
            await stack.enter_async_context(self._resources)
            stack.callback(self._service.close)
            stack.push_async_callback(self._processes.close)
            stack.push_async_callback(self._runner.close, 1.0)
            stack.callback(self._ready_jobs.close)
            self._runner.open(self._ready_jobs)
            if isinstance(self._session, BorrowedSession):
                async with self._session.savepoint(
                    "pgwake_events"
                ) as is_in_transaction:
                    if is_in_transaction:
                        await queue.wake_at_once(cast("Connection", self._session))
            while (job := await self._claim()) is not None:
                if len(runs) == limit:
                    kinds = ", ".join(sorted({run.kind for run in runs[-10:]}))
                    raise AssertionError(
                        f"{limit} jobs have run, and job {job.id} ({job.kind!r}) is due"
                        f" all the same: the last were of {kinds}. Do they enqueue each"
                        " other without end? If not: run_due(limit=...)"
                    )
                handler = self._registry.get(job.kind)
                needed = handler and self._registry.needed_by(handler)
                await self._resources.open(needed or ())
                runs.append(await self._run(job))
        return runs

    async def _claim(self) -> Attempt | None:
        while await self._scheduler.fire_due():
            pass
        asked_at = monotonic()
        claimed = await self._session.call(lambda c: queue.claim_one(c, WORKER))
        return claimed and Attempt(*claimed, asked_at)  # type: ignore[arg-type]  # unpacked alike

    async def _run(self, job: Attempt) -> Run:
        recorder, session = self._recorder, self._session
        recorder.forget()
        undoing = (
            session.savepoint("pgwake_job")
            if isinstance(session, BorrowedSession)
            else nullcontext(False)
        )
        async with undoing:
            self._ready_jobs.put([job])
            await recorder.has_end.wait()
        await self._finisher.write_all()
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
            result=result,
            error=message if isinstance(failure, BaseException) else failure,
            exception=failure if isinstance(failure, BaseException) else None,
        )


def _told(job: Attempt, failure: BaseException | str) -> BaseException:
    """Return what to raise for it: what the handler raised, from where it did."""
    what = f"job {job.id} ({job.kind!r}, attempt {job.attempt})"
    if isinstance(failure, str):
        return AssertionError(f"{what}: {failure}")
    failure.add_note(f"raised by {what}")
    trace: TracebackType | None = failure.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_OURS):
        trace = trace.tb_next
    return failure.with_traceback(trace)

"""A worker: claims jobs, runs their handlers, and keeps what it has taken."""

import asyncio
from collections.abc import Coroutine, Sequence
from importlib import import_module
from types import TracebackType
from typing import Any, Self

import anyio
import asyncpg
import structlog

from pgwake import worker_names
from pgwake.database.connection import describe
from pgwake.database.session import Session
from pgwake.database.statements.upkeep import declare_kinds
from pgwake.engine.assembly import Assembly
from pgwake.engine.attempts.runner import Runner
from pgwake.engine.lifeline.thread import Lifeline
from pgwake.engine.quarantine import Quarantine
from pgwake.errors import ConfigurationError, UnusableUrlError
from pgwake.jobs.error_reports import hide
from pgwake.jobs.registry import WEBHOOK_KIND, WEBHOOK_QUEUE, Registry
from pgwake.jobs.registry import registry as default_registry
from pgwake.jsontext import dumps
from pgwake.observe.database_fit import DatabaseFit
from pgwake.observe.metrics import Metrics
from pgwake.produce.defaults import worker_default
from pgwake.settings import DEFAULT_SLOTS, Settings, parse_queue

log = structlog.get_logger()

CLAIM_DEADLINE = 2.0  # seconds that a claim may take that is under way at the stop
CLOSE_SECONDS = 1.0  # that a cancelled handler may take to end
MAX_NAMED = 20  # queues in a line of the log
FLUSH_DEADLINE = 10.0  # seconds that the last ends may take to be written


class Worker:
    """Runs jobs in this process, on the running loop.

    `pgwake run` starts one in each of its child processes. An application may have one
    of its own:

        async with Worker(Settings.load(queues="default:5")):
            ...

    It then has no supervisor: nobody gives its jobs back at once when it dies (their
    leases run out instead), kills it when it is stuck, or ends it over a handler that
    can't be stopped. Jobs that crashed twice run one at a time, when nothing else runs
    or after a minute. And one that starts on a database that does not fit raises, so
    that the application hears of it; under the supervisor it waits. While they work
    both wait: see DatabaseFit.

    Args:
        settings: What to work on.
        registry: The handlers; by default those of pgwake.job.
        name: Who claims; never used twice. By default host, pid and a random part.
        beat_fd: Where the supervisor waits for the beat; None: no supervisor.
        http_port: Where to serve metrics and health; by default settings.http_port
            where that was set, else nowhere.
        suspects: Work on jobs that crashed twice or more, and on nothing else.
    """

    def __init__(
        self,
        settings: Settings,
        registry: Registry | None = None,
        *,
        name: str | None = None,
        beat_fd: int | None = None,
        http_port: int | None = None,
        suspects: bool = False,
    ) -> None:
        hide(settings.secrets)  # from what is told of a handler's error
        self.settings = settings
        self.registry = registry or default_registry
        self.name = name or worker_names.new_worker_name()
        self.metrics = Metrics(self.registry.kinds)
        self._suspects = suspects
        self._is_supervised = beat_fd is not None
        self._beat_fd = beat_fd
        # By default none: an application's second process could not have it.
        is_asked_for = "http_port" in settings.model_fields_set
        default = settings.http_port if is_asked_for else 0
        self._http_port = default if http_port is None else http_port
        self._stopping = asyncio.Event()
        self._at_once = asyncio.Event()
        self._ready = asyncio.Event()
        self._lifeline: Lifeline | None = None
        self._run: asyncio.Task[None] | None = None

    @property
    def queues(self) -> dict[str, int]:
        """The queues to work on, with their slots."""
        words = self.settings.queues or tuple(self.registry.queues)
        if self.registry.get(WEBHOOK_KIND):  # --webhooks is enough, beside --queue
            words = (WEBHOOK_QUEUE, *words)
        return dict(map(parse_queue, words)) or {"default": DEFAULT_SLOTS}

    def stop(self, *, at_once: bool = False) -> None:
        """Stop: at the end of the running jobs, or of the grace time, or at once."""
        self._stopping.set()
        if at_once:
            self._at_once.set()

    def expect_stop(self, *, at_once: bool = False) -> None:
        """Say that stop() is to come, from any thread or from a signal's handler.

        Should the loop be blocked when the grace time is over, the lifeline gives back
        what the process has, and ends it.
        """
        if self._lifeline is not None:
            grace = 0.0 if at_once else self.settings.grace
            self._lifeline.expect_stop(grace + self.settings.cancel_grace)

    async def run(self) -> None:
        """Work until stop() is called.

        Raises:
            ConfigurationError: No handlers, one that its process would not find or
                whose resource is missing, no database URL, or the HTTP port is taken.
                Without a supervisor also: the database does not fit when it starts, see
                DatabaseFit, or has not answered within settings.query_timeout.
            ResourceError: A resource could not be opened, or closed.
        """
        if not self.registry.kinds:
            raise ConfigurationError(
                "no handlers: name the modules that have them (--import MODULE)"
            )
        self.registry.check()
        parts = Assembly(
            self.settings,
            self.registry,
            self.name,
            queues=dict.fromkeys(self.queues, 1) if self._suspects else self.queues,
            metrics=self.metrics,
            stopping=self._stopping,
            beat_fd=self._beat_fd,
            http_port=self._http_port,
        )
        self._lifeline = parts.lifeline
        async with worker_default(self.settings.dsn):
            try:
                await parts.lifeline.start()
                async with parts.resources:
                    try:
                        if await self._start(parts):
                            await self._work(parts)
                    finally:
                        # Jobs that were abandoned may run elsewhere by now: a
                        # supervised process ends at once, and their threads with it.
                        grace = 0.0 if self._is_supervised else CLOSE_SECONDS
                        await parts.end_handlers(grace)
            finally:
                await parts.close()
                log.info("worker stopped", left=len(parts.held_jobs))

    async def _start(self, parts: Assembly) -> bool:
        """Get everything ready for the first job; whether that was before the stop."""
        return (
            await self._may_start(parts.database_fit)
            and await parts.resources.open(
                self.registry.worker_resources(), self._stopping
            )
            and await self._unless_stopped(self._declare(parts.chores))
        )

    async def _work(self, parts: Assembly) -> None:
        """Claim until the stop, drain, and end the parts."""
        parts.health.is_starting = False
        log.info(
            "worker started",
            queues=_named(
                [f"{ready.queue}:{ready.slots}" for ready in parts.all_ready]
            ),
            kinds=len(self.registry.kinds),
            http_port=self._http_port,
            suspects=self._suspects,
        )
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(parts.lifeline.ended)
            tasks.start_soon(parts.finisher.run)
            tasks.start_soon(parts.reports.run)
            tasks.start_soon(parts.upkeep.run)
            tasks.start_soon(parts.unanswered.run)
            tasks.start_soon(parts.poll.run)
            for ready_jobs in parts.all_ready:
                parts.runner.open(ready_jobs)
            await self._claim(parts)
            await self._drain(parts)
            tasks.cancel_scope.cancel()

    async def _claim(self, parts: Assembly) -> None:
        """Have jobs claimed until the stop, and claims under way then answered."""
        async with anyio.create_task_group() as claiming:
            claiming.start_soon(parts.database_fit.run)
            if self._suspects:
                claiming.start_soon(self._quarantine_only, parts.quarantine)
            else:
                for claimer in parts.claimers:
                    claiming.start_soon(claimer.run)
                if not self._is_supervised:
                    claiming.start_soon(parts.quarantine.run)
            self._ready.set()
            await self._stopping.wait()
            parts.health.is_draining = True
            parts.stop_claiming()
            claiming.cancel_scope.deadline = anyio.current_time() + CLAIM_DEADLINE
        await parts.unanswered.settle()
        for claimer in parts.claimers:
            claimer.heartbeat.rest()

    async def _quarantine_only(self, quarantine: Quarantine) -> None:
        await quarantine.run_due()
        self.stop()

    async def _drain(self, parts: Assembly) -> None:
        """Give back what has not begun; wait for, then cut short, what has."""
        finisher, runner = parts.finisher, parts.runner
        for ready_jobs in parts.all_ready:
            for job in ready_jobs.take_back():
                finisher.release(job, "unstarted")
            ready_jobs.close()
        grace = 0.0 if self._at_once.is_set() else self.settings.grace
        log.info("worker stopping", running=len(runner.running), grace_s=grace)
        await self._until_idle(runner, self.settings.grace, self._at_once)
        for job in list(runner.running):
            job.stop("shutdown")
        await self._until_idle(runner, self.settings.cancel_grace, None)
        for job in list(runner.running):  # a thread, or a handler that holds on
            if not job.is_completed:
                job.take_time()
                finisher.release(job, "shutdown")
        with anyio.move_on_after(FLUSH_DEADLINE):
            await finisher.drained()

    async def _until_idle(
        self, runner: Runner, seconds: float, cut_short: asyncio.Event | None
    ) -> None:
        with anyio.move_on_after(seconds):
            while runner.running and not (cut_short and cut_short.is_set()):
                await asyncio.sleep(0.01)

    async def _may_start(self, database_fit: DatabaseFit) -> bool:
        """Wait until the database fits; whether that was before the stop."""
        return await self._unless_stopped(
            database_fit.wait() if self._is_supervised else self._check(database_fit)
        )

    async def _check(self, database_fit: DatabaseFit) -> None:
        """Look whether it fits, for no longer than a query may take.

        Servers hear no signal while an application starts: one that waits for its
        database could only be killed.
        """
        seconds = self.settings.query_timeout
        try:
            async with asyncio.timeout(seconds):
                await database_fit.check()
        except TimeoutError:
            raise UnusableUrlError(
                f"no answer from the database within {seconds:g} s "
                "(PGWAKE_QUERY_TIMEOUT): is it up, and is PGWAKE_DATABASE_URL right?"
            ) from None

    async def _unless_stopped(self, work: Coroutine[Any, Any, None]) -> bool:
        """Do what may wait for the database; whether that was before the stop."""
        task = asyncio.create_task(work)
        stopped = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait({task, stopped}, return_when="FIRST_COMPLETED")
            if task.done():
                task.result()
            return not self._stopping.is_set()
        finally:
            await _end(task, stopped)

    async def _declare(self, session: Session) -> None:
        """Say what the kinds' policy is; without that, what held before holds."""
        kinds, version = dumps(self.registry.declaration), self.settings.app_version
        try:
            await session.call(lambda c: declare_kinds(c, kinds, version, self.name))
        except asyncpg.PostgresError as error:
            log.error("kinds not declared", error=describe(error), hint=error.hint)

    async def __aenter__(self) -> Self:
        run = self._run = asyncio.create_task(self.run())
        ready = asyncio.create_task(self._ready.wait())
        try:
            await asyncio.wait({run, ready}, return_when="FIRST_COMPLETED")
        except BaseException:
            await _end(run)
            raise
        finally:
            await _end(ready)
        if run.done():
            await run
        run.add_done_callback(_log_failure)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
        assert self._run is not None  # noqa: S101, __aenter__ has set it
        await self._run


def _named(queues: Sequence[str]) -> str:
    """Return the queues as a line of the log names them: not all of a thousand."""
    more = len(queues) - MAX_NAMED
    return ",".join(queues[:MAX_NAMED]) + (f" and {more} more" if more > 0 else "")


async def _end(*tasks: "asyncio.Task[Any]") -> None:
    """Cancel tasks and wait for their end."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _log_failure(run: "asyncio.Task[None]") -> None:
    """Say at once what the application would hear only when it leaves the worker."""
    if not run.cancelled() and (error := run.exception()) is not None:
        log.error("worker failed", exc_info=error)


def import_handlers(modules: tuple[str, ...]) -> None:
    """Import the modules that register handlers.

    Raises:
        ConfigurationError: One can't be found. What else it raises is raised.
    """
    for module in modules:
        try:
            import_module(module)
        except ModuleNotFoundError as error:
            raise ConfigurationError(
                f"--import {module}: name a module as an import does, such as shop.jobs"
                if module.endswith(".py") or {"/", ":"} & set(module)
                else f"--import {module}: no module named {error.name!r}; is it "
                "installed, or its folder on PYTHONPATH?"
            ) from error

"""The assembly: a worker's parts, each built from those above it."""

import asyncio
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import anyio
import structlog

from pgwake import worker_names
from pgwake.database.session import Session
from pgwake.engine.attempts.calls import Calls
from pgwake.engine.attempts.runner import Runner
from pgwake.engine.claimer import Claimer
from pgwake.engine.ends import EndReporter
from pgwake.engine.finisher import Finisher
from pgwake.engine.held_jobs import HeldJobs
from pgwake.engine.job_services import JobServices
from pgwake.engine.lifeline.renewal import renewal_interval
from pgwake.engine.lifeline.thread import Lifeline
from pgwake.engine.mailbox import Mailbox
from pgwake.engine.poll import Poll
from pgwake.engine.progress import ProgressReports
from pgwake.engine.quarantine import Quarantine
from pgwake.engine.ready_jobs import ReadyJobs
from pgwake.engine.report import WorkerReport
from pgwake.engine.unanswered import UnansweredClaims
from pgwake.engine.upkeep import Upkeep
from pgwake.http.context import ApiContext
from pgwake.http.events import EventFanout
from pgwake.http.pool import Pool
from pgwake.jobs.open_resources import OpenResources
from pgwake.jobs.registry import Registry
from pgwake.observe.database_fit import DatabaseFit
from pgwake.observe.health import Health
from pgwake.observe.joblog import JobLog
from pgwake.observe.metrics import Metrics
from pgwake.observe.sampler import Sampler
from pgwake.processes.pool import Processes
from pgwake.settings import DEFAULT_LEASE, Settings

log = structlog.get_logger()


class Assembly:
    """Builds the parts of a worker and closes them; the worker runs them.

    On the loop that runs them. Nothing is opened or started yet.

    Args:
        settings: The worker's settings.
        registry: The handlers.
        name: The name to claim under.
        queues: The queues to work on, with their slots.
        metrics: Where to count.
        stopping: Set when the worker is to stop.
        beat_fd: Where the supervisor waits for the beat; None: no supervisor.
        http_port: Where to serve metrics and health; 0: nowhere.
    """

    def __init__(
        self,
        settings: Settings,
        registry: Registry,
        name: str,
        *,
        queues: Mapping[str, int],
        metrics: Metrics,
        stopping: asyncio.Event,
        beat_fd: int | None,
        http_port: int,
    ) -> None:
        self._settings = settings
        self._registry = registry
        self._name = name
        self._metrics = metrics

        self._ends, self.chores = self._session("ends"), self._session("upkeep")
        self._claims = self._session("claims", self._ends)
        self.health = Health(self._claims, self._ends, self.chores)

        self.held_jobs = HeldJobs()
        self._job_log = JobLog(settings.log_jobs_per_second)
        self.reports = ProgressReports(self._ends)
        self.finisher = Finisher(
            self._ends,
            self.held_jobs,
            EndReporter(metrics, self._job_log),
            self.reports,
            self._look_again,
        )

        self.all_ready = [ReadyJobs(queue, slots) for queue, slots in queues.items()]
        self._show_slots()
        self.database_fit = DatabaseFit(
            self.chores, self.health, settings.environment, stopping
        )
        self.poll = Poll(self._claims, len(queues), settings.poll_interval)
        self.claimers = [self._build_claimer(ready) for ready in self.all_ready]
        self.quarantine = Quarantine(
            self.claimers,
            self.chores,
            held_jobs=self.held_jobs,
            claim_lock=self.database_fit.lock,
            poll_interval=settings.poll_interval,
        )
        self.unanswered = UnansweredClaims(
            self._claims, name, self.held_jobs, self.database_fit.lock
        )

        slots = sum(ready_jobs.slots for ready_jobs in self.all_ready)
        self._threads = ThreadPoolExecutor(slots, "pgwake-job")
        self._processes = Processes(
            settings, name, registry.child_parts, has_own_log=beat_fd is not None
        )
        self.resources = OpenResources(settings.resource_timeout)
        self._service = self._build_service(slots)
        self.runner = self._build_runner()

        sampler = Sampler(metrics)
        self._worker_report = WorkerReport(name, list(queues), registry.kinds, slots)
        self.upkeep = self._build_upkeep(sampler)
        self.lifeline = self._build_lifeline(sampler, beat_fd, http_port)
        self.health.heartbeats += [
            *(claimer.heartbeat for claimer in self.claimers),
            self.poll.heartbeat,
            self.finisher.heartbeat,
            self.upkeep.heartbeat,
        ]

    def stop_claiming(self) -> None:
        """Let the claimers and the quarantine end, with no claim cut off."""
        self.quarantine.stop()
        for claimer in self.claimers:
            claimer.stop()

    async def end_handlers(self, seconds: float) -> None:
        """End the slots; handlers that hold on for so long are left behind."""
        with anyio.CancelScope(shield=True):
            await self.runner.close(seconds)
            await self._processes.close()

    async def close(self) -> None:
        """Close what was opened."""
        try:
            with anyio.CancelScope(shield=True):
                self._service.close()
                await self._worker_report.leave(self.chores)
                await self.lifeline.stop()
            self._threads.shutdown(wait=False, cancel_futures=True)
            self._job_log.summarise()
        finally:
            for session in (self._claims, self._ends, self.chores):
                session.close()

    def _session(self, role: str, after: Session | None = None) -> Session:
        settings, application = (
            self._settings,
            worker_names.application_name(self._name),
        )
        return Session(settings.dsn, application, role, settings.query_timeout, after)

    def _show_slots(self) -> None:
        for ready_jobs in self.all_ready:
            self._metrics.claim_succeeded.note((ready_jobs.queue,))
            self._metrics.slots.set(ready_jobs.slots, ready_jobs.queue)
            self._metrics.busy_slots.set(
                partial(getattr, ready_jobs, "busy"), ready_jobs.queue
            )

    def _look_again(self, queues: Collection[str]) -> None:
        for claimer in self.claimers:
            if claimer.ready_jobs.queue in queues:
                claimer.mailbox.woken.set()

    def _build_claimer(self, ready_jobs: ReadyJobs) -> Claimer:
        return Claimer(
            ready_jobs,
            Mailbox(ready_jobs.queue),
            self._claims,
            worker=self._name,
            lease=self._settings.lease,
            poll=self.poll,
            held_jobs=self.held_jobs,
            metrics=self._metrics,
            claim_lock=self.database_fit.lock,
            finisher=self.finisher,
        )

    def _build_service(self, slots: int) -> JobServices:
        return JobServices(
            self._settings.dsn,
            worker_names.handlers_application_name(self._name),
            self._settings.query_timeout,
            min(slots, self._settings.transaction_sessions),
            self.finisher,
            self.reports,
        )

    def _build_runner(self) -> Runner:
        return Runner(
            self._registry,
            self.finisher,
            Calls(
                self._threads,
                self._processes,
                self._registry.middlewares,
                self.resources.values,
            ),
            self._service,
            self._name if self._settings.tracing else None,
            logs_starts=self._settings.log_level == "debug",
        )

    def _build_upkeep(self, sampler: Sampler) -> Upkeep:
        return Upkeep(
            self.chores,
            self.health,
            self._metrics,
            sampler,
            self._worker_report,
            renewal_interval(self._settings.lease or DEFAULT_LEASE),
        )

    def _build_api_context(self, sampler: Sampler) -> ApiContext:
        name = worker_names.api_application_name(self._name)
        return ApiContext(
            self._settings,
            self._metrics,
            self.health,
            sampler.history,
            Pool(self._settings.dsn, name, self._settings.query_timeout),
            EventFanout(self._settings.listen_dsn, name),
        )

    def _build_lifeline(
        self, sampler: Sampler, beat_fd: int | None, http_port: int
    ) -> Lifeline:
        return Lifeline(
            self._settings,
            self._name,
            mailboxes=[claimer.mailbox for claimer in self.claimers],
            held_jobs=self.held_jobs,
            all_ready=self.all_ready,
            finisher=self.finisher,
            health=self.health,
            metrics=self._metrics,
            api_context=self._build_api_context(sampler),
            stop_claiming=self.stop_claiming,
            beat_fd=beat_fd,
            http_port=http_port,
        )

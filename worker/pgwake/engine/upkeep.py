"""The upkeep of the database, in turns of one worker; reports, and statistics."""

import asyncio
import random
from itertools import starmap
from time import monotonic
from typing import Any

import asyncpg
import structlog

from pgwake.database.connection import MAX_BACKOFF_SECONDS, Connection, describe
from pgwake.database.session import Session
from pgwake.database.statements.upkeep import CrashCount, maintain
from pgwake.engine.report import WorkerReport
from pgwake.engine.scheduler import Scheduler
from pgwake.heartbeat import Heartbeat
from pgwake.observe.findings import DIAGNOSE_SECONDS
from pgwake.observe.health import Health
from pgwake.observe.metrics import Metrics
from pgwake.observe.sampler import SAMPLE_SECONDS, Sampler

log = structlog.get_logger()

# What take_upkeep may ask for.
STEPS = (
    *("schedules", "sweep", "children", "fold", "keys"),
    *("retention", "analyze", "ids", "recount"),
)
# Between turns of the one worker that has the upkeep. The others look whether it is
# theirs: together about once a second, but each at least once in LOOK_SECONDS.
TURN_SECONDS = 1.0
LOOK_SECONDS = 10.0
# After a step that was refused: longer than the upkeep stays with one who does not come
# back, so that another worker tries.
REFUSED_SECONDS = 5.0
# What retention removes from a leaf at most in one step; there may be more then.
RETENTION_ROWS = 5000
BEHIND_SECONDS = 1.0
MISFIT_SECONDS = 1.0
REPORT_SECONDS = 10.0


class Upkeep:
    """Does the upkeep while it is this worker's, reports the worker, and sets gauges.

    The database says who has the upkeep and which steps are due: see take_upkeep.

    Args:
        session: A session of its own.
        health: Where it is noted whether the database fits: without that it rests.
        metrics: Where crashes and ticks are counted.
        sampler: What it asks for the gauges.
        worker_report: What the worker reports of itself.
        renewal_interval: Seconds; a session sweeps only when it has been up for as
            long, and for the longest pause of a reconnect, so that after an outage of
            the database the others can renew before.
    """

    def __init__(
        self,
        session: Session,
        health: Health,
        metrics: Metrics,
        sampler: Sampler,
        worker_report: WorkerReport,
        renewal_interval: float,
    ) -> None:
        self._session = session
        self.heartbeat = Heartbeat("the upkeep", session.timeout)
        self._health = health
        self._metrics = metrics
        self._sampler = sampler
        self._worker_report = worker_report
        self._renewal_interval = renewal_interval
        self._scheduler = Scheduler(session, metrics)
        self._due: dict[str, float] = {}  # when each step is, on the monotonic clock
        self._done: list[str] = []  # since the last turn
        self._report_at = 0.0
        metrics.database_up.set(lambda: session.up_since is not None)

    async def run(self) -> None:
        """Do it for ever; nothing that the database answers ends it."""
        # What each worker does itself; take_upkeep adds what is to be done for all. The
        # first sample comes after the report, so that it shows the worker.
        now = monotonic()
        diagnose_at = now + random.uniform(0, DIAGNOSE_SECONDS)  # noqa: S311
        self._due = {"turn": now, "sample": now, "diagnose": diagnose_at}
        for step in ("report", "sample", "diagnose", *STEPS):
            self._metrics.upkeep_succeeded.note((step,))
        self.heartbeat.start()
        while True:
            self.heartbeat.beat()
            step = min(self._due, key=lambda name: self._due[name])
            await asyncio.sleep(max(self._due[step] - monotonic(), 0))
            if self._health.misfit is not None:
                await asyncio.sleep(MISFIT_SECONDS)
                continue
            try:
                wait = await self._do(step)
            except asyncpg.PostgresError as error:
                log.error("upkeep refused", step=step, error=describe(error))
                wait = REFUSED_SECONDS
                if step in STEPS:
                    self._put("turn", wait)
                    wait = None
            if wait is None:
                self._due.pop(step, None)
            else:
                self._put(step, wait)

    def _put(self, step: str, seconds: float) -> None:
        self._due[step] = monotonic() + seconds * random.uniform(0.9, 1.1)  # noqa: S311

    async def _do(self, step: str) -> float | None:
        """Do a step; seconds until it is due again, None: when a turn says so."""
        if step == "turn":
            return await self._take_turn()
        if step == "sample":
            if await self._session.call(self._sampler.sample):
                self._metrics.upkeep_succeeded.note((step,))
            return max(SAMPLE_SECONDS, self._sampler.seconds)
        if step == "diagnose":
            findings, workers = self._metrics.findings, self._sampler.worker_count
            if await self._session.call(lambda c: findings.look(c, workers)):
                self._metrics.upkeep_succeeded.note((step,))
            return max(DIAGNOSE_SECONDS, findings.seconds)
        if step == "schedules":
            has_more = await self._scheduler.fire_due()
            self._note_done(step)
            return 0.0 if has_more else None  # but whatever else is due comes before
        return await self._maintain(step)

    async def _take_turn(self) -> float:
        """Report, and hear what is to be done now; seconds until the next turn."""
        is_report = monotonic() >= self._report_at
        turn = await self._session.call(
            lambda connection: self._worker_report.take_upkeep(
                connection,
                may_sweep=self._may_sweep(),
                done=self._done,
                is_report=is_report,
            )
        )
        if is_report:
            self._report_at = monotonic() + 0.9 * REPORT_SECONDS
            self._metrics.upkeep_succeeded.note(("report",))
        self._done = []
        for step, seconds in turn.done_ago.items():
            self._metrics.upkeep_succeeded.note((step,), seconds)
        if not turn.steps:  # they are another worker's
            for step in STEPS:
                self._due.pop(step, None)
            return min(self._sampler.worker_count * TURN_SECONDS, LOOK_SECONDS)
        now = monotonic()
        for step in turn.steps:
            self._due.setdefault(step, now)
        return TURN_SECONDS

    def _note_done(self, step: str) -> None:
        self._done.append(step)
        self._metrics.upkeep_succeeded.note((step,))

    async def _maintain(self, step: str) -> float | None:
        async def once(connection: Connection) -> dict[str, Any]:
            # Looked at here, since a repetition may be on a new session.
            if step == "sweep" and not self._may_sweep():
                return {}
            return await maintain(connection, step)

        done = await self._session.call(once)
        if step in done:
            self._note_done(step)
        for crashed in starmap(CrashCount, done.get("crashed", ())):
            log.warning(
                "leases ran out",
                queue=crashed.queue,
                kind=crashed.kind,
                jobs=crashed.jobs,
            )
            self._metrics.crashed(crashed)
        for queue, kind, count in done.get("expired", ()):
            log.warning("jobs expired", queue=queue, kind=kind, jobs=count)
            self._metrics.expired(queue, kind, count)
        is_behind = step == "retention" and done.get(step, 0) >= RETENTION_ROWS
        return BEHIND_SECONDS if is_behind else None

    def _may_sweep(self) -> bool:
        up_since = self._session.up_since
        if up_since is None:
            return False
        return monotonic() - up_since > self._renewal_interval + MAX_BACKOFF_SECONDS

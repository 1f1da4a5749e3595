"""The share that each worker has in the upkeep, its report, and the statistics."""

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

# Seconds between the tries of each step. All workers try; whoever gets the step's lock
# does it.
STEPS = {
    "sweep": 1.0,
    "children": 1.0,
    "fold": 5.0,
    "retention": 60.0,
    "analyze": 60.0,
    "keys": 60.0,
    "ids": 60.0,
    "recount": 3600.0,
}
# What retention removes from a leaf at most in one step; there may be more then.
RETENTION_ROWS = 5000
BEHIND_SECONDS = 1.0
SCHEDULE_SECONDS = 1.0
MISFIT_SECONDS = 1.0
REPORT_SECONDS = 10.0


class Upkeep:
    """Calls the steps of maintain, fires schedules, reports the worker, sets gauges.

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
        self._is_behind = False
        self._has_ticks = False
        metrics.database_up.set(lambda: session.up_since is not None)

    async def run(self) -> None:
        """Do it for ever; nothing that the database answers ends it."""
        now = monotonic()
        every = {
            "schedules": SCHEDULE_SECONDS,
            "report": REPORT_SECONDS,
            "sample": SAMPLE_SECONDS,  # after the report, so that it shows the worker
            "diagnose": DIAGNOSE_SECONDS,
            **STEPS,
        }
        due = {step: now + random.uniform(0, every[step]) for step in every}  # noqa: S311
        due["report"] = due["sample"] = now
        for step in every:
            self._metrics.upkeep_succeeded.note((step,))
        self.heartbeat.start()
        while True:
            self.heartbeat.beat()
            step = min(due, key=lambda name: due[name])
            await asyncio.sleep(max(due[step] - monotonic(), 0))
            if self._health.misfit is not None:
                await asyncio.sleep(MISFIT_SECONDS)
                continue
            try:
                if await self._do(step):
                    self._metrics.upkeep_succeeded.note((step,))
            except asyncpg.PostgresError as error:
                log.error("upkeep refused", step=step, error=describe(error))
            wait = every[step]
            if step == "sample":
                wait = max(wait, self._sampler.seconds)
            elif step == "diagnose":
                wait = max(wait, self._metrics.findings.seconds)
            elif step == "schedules" and self._has_ticks:
                wait = 0.0  # but whatever else is due comes before
            elif step == "retention" and self._is_behind:
                self._is_behind = False  # unless the next one says so again
                wait = BEHIND_SECONDS
            due[step] = monotonic() + wait * random.uniform(0.9, 1.1)  # noqa: S311

    async def _do(self, step: str) -> bool:
        """Do a step; whether it has been done, and not left to somebody else."""
        if step == "report":
            await self._session.call(self._worker_report.report)
        elif step == "sample":
            return await self._session.call(self._sampler.sample)
        elif step == "diagnose":
            return await self._session.call(
                lambda connection: self._metrics.findings.look(
                    connection, self._sampler.worker_count
                )
            )
        elif step == "schedules":
            self._has_ticks = await self._scheduler.fire_due()
        else:
            return await self._maintain(step)
        return True

    async def _maintain(self, step: str) -> bool:
        async def once(connection: Connection) -> dict[str, Any]:
            # Looked at here, since a repetition may be on a new session.
            if step == "sweep" and not self._may_sweep():
                return {}
            return await maintain(connection, step)

        done = await self._session.call(once)
        if step == "retention":
            self._is_behind = done.get(step, 0) >= RETENTION_ROWS
        for crashed in starmap(CrashCount, done.get("crashed", ())):
            log.warning(
                "leases ran out",
                queue=crashed.queue,
                kind=crashed.kind,
                jobs=crashed.jobs,
            )
            self._metrics.crashed(crashed)
        return step in done

    def _may_sweep(self) -> bool:
        up_since = self._session.up_since
        if up_since is None:
            return False
        return monotonic() - up_since > self._renewal_interval + MAX_BACKOFF_SECONDS

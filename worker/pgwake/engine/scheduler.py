"""Fires the ticks of schedules: each worker looks, and whoever is first does it."""

import asyncpg
import structlog

from pgwake.database.connection import Connection, describe
from pgwake.database.session import Session
from pgwake.database.statements import schedules
from pgwake.errors import InvalidScheduleError
from pgwake.observe.metrics import Metrics
from pgwake.ticks import MISFIRE_GRACE, Due, plan

log = structlog.get_logger()


class Scheduler:
    """Computes the ticks that are due, and has the database make jobs of them.

    Args:
        session: Where to ask; its clock counts.
        metrics: Where ticks are counted.
    """

    def __init__(self, session: Session, metrics: Metrics) -> None:
        self._session = session
        self._metrics = metrics

    async def fire_due(self) -> None:
        """Look once. What one schedule has wrong is noted with it, and hinders none."""
        for due in await self._session.call(schedules.due):
            try:
                await self._fire(due)
            except (InvalidScheduleError, asyncpg.PostgresError) as error:
                await self._note(due, error)

    async def _fire(self, due: Due) -> None:
        ticks, next_at = plan(due)

        async def fire(connection: Connection) -> int | None:
            return await schedules.fire(connection, due, ticks, next_at)

        fired = await self._session.call(fire)
        if fired is not None:
            if ticks and ticks[0] < due.now - MISFIRE_GRACE:
                first = str(ticks[0])
                log.warning("schedule fired late", schedule=due.name, tick=first)
            self._metrics.ticked("fired", fired)
            self._metrics.ticked("left_out", len(ticks) - fired)

    async def _note(self, due: Due, error: Exception) -> None:
        if isinstance(error, asyncpg.PostgresError):
            problem = describe(error)
        else:
            problem = str(error)

        async def note(connection: Connection) -> bool:
            return await schedules.note_problem(connection, due, problem)

        self._metrics.ticked("refused", 1)
        if await self._session.call(note):
            log.error("schedule can't be fired", schedule=due.name, problem=problem)

"""Fires the ticks of schedules: each worker looks, and whoever is first does it."""

import asyncpg
import structlog

from pgwake.database.connection import Connection, describe
from pgwake.database.session import Session
from pgwake.database.statements import schedules
from pgwake.database.statements.schedules import Ticks
from pgwake.errors import InvalidScheduleError
from pgwake.observe.metrics import Metrics
from pgwake.ticks import MISFIRE_GRACE, DueSchedule, plan

log = structlog.get_logger()

BATCH = 100  # schedules that are fired by one statement


class Scheduler:
    """Computes the ticks that are due, and has the database make jobs of them.

    Args:
        session: Where to ask; its clock counts.
        metrics: Where ticks are counted.
    """

    def __init__(self, session: Session, metrics: Metrics) -> None:
        self._session = session
        self._metrics = metrics

    async def fire_due(self) -> bool:
        """Fire a batch; whether more are due.

        What one schedule has wrong is noted with it, and hinders none.
        """
        due, has_more = await self._session.call(lambda c: schedules.due(c, BATCH))
        batch = []
        for one in due:
            try:
                batch.append(Ticks(one, *plan(one)))
            except InvalidScheduleError as error:
                await self._note(one, error)
        if batch:
            await self._fire(batch)
        return has_more

    async def _fire(self, batch: list[Ticks]) -> None:
        try:
            counts = await self._session.call(lambda c: schedules.fire(c, batch))
        except asyncpg.PostgresError as error:
            if len(batch) == 1:
                await self._note(batch[0].due, error)
                return
            for one in batch:  # one of them is refused; the others must not suffer
                await self._fire([one])
            return
        for (due, ticks, _), fired in zip(batch, counts, strict=True):
            if fired is None:
                continue
            if ticks and ticks[0] < due.now - MISFIRE_GRACE:
                first = str(ticks[0])
                log.warning("schedule fired late", schedule=due.name, tick=first)
            self._metrics.ticked("fired", fired)
            self._metrics.ticked("left_out", len(ticks) - fired)

    async def _note(self, due: DueSchedule, error: Exception) -> None:
        if isinstance(error, asyncpg.PostgresError):
            problem = describe(error)
        else:
            problem = str(error)

        async def note(connection: Connection) -> bool:
            return await schedules.note_problem(connection, due, problem)

        self._metrics.ticked("refused", 1)
        if await self._session.call(note):
            log.error("schedule can't be fired", schedule=due.name, problem=problem)

"""How far the jobs of this process are: what handlers report, written together."""

import asyncio
import threading
from collections.abc import Iterable
from contextlib import suppress

import asyncpg
import structlog

from pgwake.database.connection import describe
from pgwake.database.session import Session
from pgwake.database.statements.finish import set_progresses
from pgwake.jobs.attempt import Attempt

log = structlog.get_logger()

PAUSE_SECONDS = 0.5  # between two writes


class ProgressReports:
    """What handlers report, the newest of each job: a statement each half second.

    What is left when a job ends is written before the end.

    Args:
        session: Where to write. The one where ends are written too, so that a report
            that is on its way comes before its job's end.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._loop = asyncio.get_running_loop()
        self._more = asyncio.Event()
        self._news: dict[Attempt, str | None] = {}
        self._lock = threading.Lock()

    def __bool__(self) -> bool:
        return bool(self._news)

    def put(self, job: Attempt, text: str | None) -> None:
        """Take a report, JSON text; from any thread."""
        with self._lock:
            self._news[job] = text
        # In this order: run() clears the event before it looks at the news.
        if not self._more.is_set():
            with suppress(RuntimeError):  # the loop is closed: nobody writes any more
                self._loop.call_soon_threadsafe(self._more.set)

    def newest(self, jobs: Iterable[Attempt]) -> dict[Attempt, str | None]:
        """Return the reports of some jobs that are not known to be written."""
        with self._lock:
            return {job: self._news[job] for job in jobs if job in self._news}

    async def run(self) -> None:
        """Write for ever."""
        while True:
            await self._more.wait()
            self._more.clear()
            if await self.write(self._session, list(self._news)):
                self._more.set()
            await asyncio.sleep(PAUSE_SECONDS)

    async def write(self, session: Session, jobs: Iterable[Attempt]) -> bool:
        """Write the reports of some jobs; whether any is left: its row is locked."""
        news = self.newest(jobs)
        if not news:
            return False
        try:
            outcomes = await session.call(
                lambda connection: set_progresses(
                    connection,
                    [job.id for job in news],
                    [job.lease_id for job in news],
                    list(news.values()),
                )
            )
        except asyncpg.PostgresError as error:
            if len(news) > 1:  # one of them is refused; the others must not suffer
                return any([await self.write(session, [job]) for job in news])
            (job,) = news
            log.warning(
                "progress refused", job=job.id, kind=job.kind, error=describe(error)
            )
            outcomes = ["refused"]
        with self._lock:
            for (job, text), outcome in zip(news.items(), outcomes, strict=True):
                is_newest = self._news.get(job, job) is text
                if is_newest and outcome != "skipped":
                    del self._news[job]
        return "skipped" in outcomes

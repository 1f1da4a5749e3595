"""How far the jobs of this process are: what handlers report, written together."""

import asyncio
from collections.abc import Iterable
from contextlib import suppress

import asyncpg
import structlog

from pgwake.connection import Session, describe
from pgwake.job import Job
from pgwake.queue import progress

log = structlog.get_logger()

PAUSE_SECONDS = 0.5  # between two writes


class Reports:
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
        self._news: dict[Job, str | None] = {}

    def __bool__(self) -> bool:
        return bool(self._news)

    def put(self, job: Job, text: str | None) -> None:
        """Take a report, JSON text; from any thread."""
        self._news[job] = text
        # In this order: run() clears the event before it takes the news.
        if not self._more.is_set():
            with suppress(RuntimeError):  # the loop is closed: nobody writes any more
                self._loop.call_soon_threadsafe(self._more.set)

    def take(self, jobs: Iterable[Job]) -> dict[Job, str | None]:
        """Take out the reports of some jobs, those that have any."""
        taken = {}
        for job in jobs:
            with suppress(KeyError):
                taken[job] = self._news.pop(job)
        return taken

    async def run(self) -> None:
        """Write for ever."""
        while True:
            await self._more.wait()
            self._more.clear()
            for job, text in (
                await self.write(self._session, list(self._news))
            ).items():
                self._news.setdefault(job, text)
                self._more.set()
            await asyncio.sleep(PAUSE_SECONDS)

    async def write(
        self, session: Session, jobs: Iterable[Job]
    ) -> dict[Job, str | None]:
        """Write the reports of some jobs; those that met a locked row are returned."""
        news = self.take(jobs)
        if not news:
            return {}
        try:
            outcomes = await session.call(
                lambda connection: progress.set_progresses(
                    connection,
                    [job.id for job in news],
                    [job.lease_id for job in news],
                    list(news.values()),
                )
            )
        except asyncpg.PostgresError as error:
            if len(news) == 1:  # its JSON is longer in the database's form
                (job,) = news
                log.warning(
                    "progress refused", job=job.id, kind=job.kind, error=describe(error)
                )
                return {}
            skipped: dict[Job, str | None] = {}
            for job, text in news.items():  # the others must not suffer
                self._news.setdefault(job, text)
                skipped |= await self.write(session, [job])
            return skipped
        # Who has lost the lease hears of that otherwise.
        return {
            job: text
            for (job, text), outcome in zip(news.items(), outcomes, strict=True)
            if outcome == "skipped"
        }

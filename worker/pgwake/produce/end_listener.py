"""Listens for the ends of jobs, while somebody waits for one."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import structlog

from pgwake.database.pooler import PooledError
from pgwake.database.status_listener import NOT_OURS, StatusListener
from pgwake.produce.waiting import ENDED

log = structlog.get_logger()


class EndListener:
    """One session that hears of ends, while anybody waits for one.

    Args:
        url: The database, by a direct connection: LISTEN does not work through a
            transaction pooler, which is found out; then nothing is heard. None: no
            session, nothing is heard.
    """

    def __init__(self, url: str | None) -> None:
        self._listener = (
            StatusListener(url, "pgwake:waits", hear=self._hear, tell=self._tell)
            if url is not None
            else None
        )
        self._waiting: dict[int, set[asyncio.Event]] = {}
        self._run: asyncio.Task[None] | None = None

    @property
    def is_heard(self) -> bool:
        """Whether ends are heard of."""
        return self._listener is not None and self._listener.is_heard

    @asynccontextmanager
    async def of(self, job_id: int) -> AsyncIterator[asyncio.Event]:
        """Set an event whenever the job may have ended."""
        event = asyncio.Event()
        self._waiting.setdefault(job_id, set()).add(event)
        if self._run is None and self._listener is not None:
            self._run = asyncio.create_task(self._watch())
        try:
            yield event
        finally:
            self._waiting[job_id].discard(event)
            if not self._waiting[job_id]:
                del self._waiting[job_id]
            if not self._waiting and self._run is not None:
                run, self._run = self._run, None
                run.cancel()
                await asyncio.gather(run, return_exceptions=True)

    async def _watch(self) -> None:
        assert self._listener is not None  # noqa: S101, of() has looked
        try:
            await self._listener.run()
        except PooledError:
            log.warning(
                "listening is impossible",
                cause="a transaction pooler stands before the database, so only"
                " polls find the ends of jobs",
                remedy="give the queue a listen_url that is a direct connection",
            )

    def _tell(self, is_heard: bool) -> None:
        if is_heard:  # what ended before is found by a look
            for events in self._waiting.values():
                _set(events)

    def _hear(self, payload: str) -> None:
        with suppress(*NOT_OURS):
            event = json.loads(payload)
            if event["new_status"] in ENDED:
                _set(self._waiting.get(event["id"], set()))


def _set(events: set[asyncio.Event]) -> None:
    for event in events:
        event.set()

"""Waiting for the end of jobs: news of ends, and how long to wait between looks."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from math import isnan
from time import monotonic
from typing import Any, Literal

import structlog

from pgwake.database.pooler import PooledError
from pgwake.database.statements import producer
from pgwake.database.status_listener import NOT_OURS, Watcher
from pgwake.errors import InvalidArgumentError, WaitTimeoutError

log = structlog.get_logger()

ENDED = ("completed", "failed", "cancelled")
POLL_SECONDS = 5.0  # while news is heard
MAX_POLL_SECONDS = 1.0  # where none is heard; begins with a fiftieth of it


@dataclass(frozen=True, slots=True)
class Ended:
    """How a job ended.

    Attributes:
        id: The job's id.
        queue: Its queue.
        kind: Its kind.
        status: completed, failed or cancelled.
        result: What a completed one has as its result.
        errors: The last failed attempts, oldest first: attempt, at, worker, reason and
            message of each.
    """

    id: int
    queue: str
    kind: str
    status: Literal["completed", "failed", "cancelled"]
    result: Any
    errors: list[dict[str, Any]]


class Wait:
    """One wait: what a look has shown, when to look again, and when to give up.

    Args:
        job_id: The job.
        timeout: Seconds to wait at most; None: for ever.

    Raises:
        InvalidArgumentError: The time is no number.
    """

    def __init__(self, job_id: int, timeout: float | None) -> None:
        if timeout is not None and isnan(timeout):
            raise InvalidArgumentError("timeout is nan: give seconds, or None")
        self.question = producer.look(job_id)
        self._job_id = job_id
        self._timeout = timeout
        self._deadline = None if timeout is None else monotonic() + timeout
        self._seconds = MAX_POLL_SECONDS / 50
        self._snapshot_at: str | None = None

    def ended(self, look: producer.Look) -> Ended | None:
        """Return how the job has ended; None if it has not yet.

        Raises:
            InvalidArgumentError: Who looks can't ever see its end.
        """
        job = look.job
        if job["status"] in ENDED:
            return Ended(**{**job, "errors": job["errors"] or []})
        if look.is_own:
            raise InvalidArgumentError(
                f"job {self._job_id} was added or changed by this very transaction: no"
                " worker sees that before the commit, so wait after it"
            )
        if look.snapshot_at is not None and look.snapshot_at == self._snapshot_at:
            raise InvalidArgumentError(
                f"job {self._job_id}: this transaction sees the database as it was when"
                " it began (isolation above read committed), so wait outside of it"
            )
        self._snapshot_at = look.snapshot_at
        return None

    def seconds(self, *, hears: bool = False) -> float:
        """Seconds until the next look.

        Raises:
            WaitTimeoutError: The time is up.
        """
        seconds = POLL_SECONDS if hears else self._seconds
        self._seconds = min(self._seconds * 1.5, MAX_POLL_SECONDS)
        if self._deadline is None:
            return seconds
        left = self._deadline - monotonic()
        if left <= 0:
            raise WaitTimeoutError(
                f"job {self._job_id} has not ended within {self._timeout} s"
            )
        return min(seconds, left)


class News:
    """One session that hears of ends, while anybody waits for one.

    Args:
        url: The database, by a direct connection: LISTEN does not work through a
            transaction pooler, which is found out; then nothing is heard. None: no
            session, nothing is heard.
    """

    def __init__(self, url: str | None) -> None:
        self._watcher = (
            Watcher(url, "pgwake:waits", hear=self._hear, tell=self._tell)
            if url is not None
            else None
        )
        self._waiting: dict[int, set[asyncio.Event]] = {}
        self._run: asyncio.Task[None] | None = None

    @property
    def is_heard(self) -> bool:
        """Whether ends are heard of."""
        return self._watcher is not None and self._watcher.is_heard

    @asynccontextmanager
    async def of(self, job_id: int) -> AsyncIterator[asyncio.Event]:
        """Set an event whenever the job may have ended."""
        event = asyncio.Event()
        self._waiting.setdefault(job_id, set()).add(event)
        if self._run is None and self._watcher is not None:
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
        assert self._watcher is not None  # noqa: S101, of() has looked
        try:
            await self._watcher.run()
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

"""The fan-out: status changes, heard once a process and told to many clients."""

import asyncio
import json
import re
import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import NamedTuple

import structlog

from pgwake.database.pooler import PooledError
from pgwake.database.status_listener import NOT_OURS, StatusListener
from pgwake.sleep import pause

log = structlog.get_logger()

RING = 4096  # events that a client may be behind, more than one read of a socket brings
CHUNK = 256  # events that are sent at once
MAX_CLIENTS = 100
HEARTBEAT_SECONDS = 15.0
LINGER_SECONDS = 10.0  # that the session outlives the last client, which may come back
POOLED_SECONDS = 300.0  # until it tries again whether LISTEN works meanwhile
RETRY_MILLISECONDS = 2000
MAX_NAME = 128  # bytes of a queue or a kind
_STATUSES = ("waiting", "pending", "running", "completed", "failed", "cancelled")
_ID = re.compile(r"([0-9a-f]{8})-([0-9]{1,15})")


class Event(NamedTuple):
    """A change of status: whose queue, and what a client is told."""

    queue: str
    data: str


class EventFanout:
    """Holds one session that watches, while there are clients, and a ring of events.

    An unbroken time of hearing is an epoch, and so is one of not hearing. Events are
    numbered within theirs, and an epoch never comes back: so whoever asks for what came
    after an event gets it whole, or is told to read anew.

    For one loop; memory is bounded by the ring, whatever the clients do.

    Args:
        url: The database, by a direct connection.
        name: The application_name.
    """

    def __init__(self, url: str, name: str) -> None:
        self._listener = StatusListener(url, name, hear=self._hear, tell=self._tell)
        self._ring: list[Event | None] = [None] * RING
        self._count = 0
        self._epoch = ""
        self._opening: str | None = None  # what clients are told of the epoch
        self._reason = ""
        self._clients = 0
        self._wanted = asyncio.Event()
        self._unwanted = asyncio.Event()
        self._changed = asyncio.Event()
        self._is_closed = False
        self._begin(None)

    @property
    def is_full(self) -> bool:
        """Whether there are as many clients as may be."""
        return self._clients >= MAX_CLIENTS

    async def run(self) -> None:
        """Watch while there are clients; when it ends, the streams do."""
        try:
            while True:
                await self._wanted.wait()
                async with asyncio.TaskGroup() as tasks:
                    watching = tasks.create_task(self._watch())
                    while True:
                        await self._unwanted.wait()
                        if not await pause(self._wanted, LINGER_SECONDS):
                            break
                    watching.cancel()
                self._begin(None)
        finally:
            self._is_closed = True
            self._wake()

    @contextmanager
    def client(self) -> Iterator[None]:
        """Count a client for as long as it is there."""
        self._clients += 1
        self._wanted.set()
        self._unwanted.clear()
        try:
            yield
        finally:
            self._clients -= 1
            if not self._clients:
                self._wanted.clear()
                self._unwanted.set()

    async def follow(
        self, queue: str | None, last_id: str | None
    ) -> AsyncIterator[str]:
        """Tell one client, as text/event-stream, until the fan-out ends.

        Args:
            queue: Whose events to tell; None: those of all queues.
            last_id: The last id that the client has got before, if any.
        """
        known = _ID.fullmatch(last_id or "")
        epoch, seen = (known[1], int(known[2])) if known else ("", 0)
        yield f"retry: {RETRY_MILLISECONDS}\n\n"
        told_at = monotonic()
        while not self._is_closed:
            changed = self._changed
            if epoch == self._epoch and self._count - RING <= seen <= self._count:
                text, seen = self._read(seen, queue)
            else:
                epoch, seen, text = self._epoch, self._count, self._say_opening()
            if not text and seen == self._count:
                left = told_at + HEARTBEAT_SECONDS - monotonic()
                if left > 0 and await pause(changed, left):
                    continue
                text = ":\n\n"
            if text:
                yield text
                told_at = monotonic()

    def _read(self, seen: int, queue: str | None) -> tuple[str, int]:
        """Return what came after an event, and the number of the last looked at."""
        until = min(seen + CHUNK, self._count)
        told = []
        for number in range(seen, until):
            event = self._ring[number % RING]
            if event is not None and queue in (None, event.queue):
                told.append(
                    f"id: {self._epoch}-{number + 1}\n"
                    f"event: job_status_changed\ndata: {event.data}\n\n"
                )
        return "".join(told), until

    def _say_opening(self) -> str:
        if self._opening == "reset":
            return f"id: {self._epoch}-{self._count}\nevent: reset\ndata: {{}}\n\n"
        if self._opening == "poll":  # without an id: nothing can be taken up from here
            return f"event: poll\ndata: {json.dumps({'reason': self._reason})}\n\n"
        return ""

    def _begin(self, opening: str | None, reason: str = "") -> None:
        """Begin an epoch."""
        self._epoch = secrets.token_hex(4)
        self._count = 0
        self._opening = opening
        self._reason = reason
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def _watch(self) -> None:
        was_told = False
        while True:
            try:
                await self._listener.run()
            except PooledError:
                self._begin("poll", "pooler")
                report = log.debug if was_told else log.warning
                was_told = True
                report(
                    "listening is impossible",
                    cause="a transaction pooler stands before the database, so clients"
                    " of /api/events are told to poll",
                    remedy="set PGWAKE_LISTEN_URL to a direct connection",
                )
            await asyncio.sleep(POOLED_SECONDS)

    def _tell(self, is_heard: bool) -> None:
        if is_heard:
            self._begin("reset")
        elif self._opening != "poll":
            self._begin("poll", "database")

    def _hear(self, payload: str) -> None:
        if self._opening != "reset" or (event := _parse(payload)) is None:
            return
        self._ring[self._count % RING] = event
        self._count += 1
        self._wake()


def _parse(payload: str) -> Event | None:
    """Return the event that a notification tells; None: it is none of ours."""
    try:
        told = json.loads(payload)
        job_id, queue, kind = told["id"], told["queue"], told["kind"]
        old, new = told["old_status"], told["new_status"]
        is_ours = (
            type(job_id) is int
            and all(len(name.encode()) <= MAX_NAME for name in (queue, kind))
            and new in _STATUSES
            and (old is None or old in _STATUSES)
        )
    except (*NOT_OURS, AttributeError):
        return None
    if not is_ours:
        return None
    data = {
        "id": job_id,
        "queue": queue,
        "kind": kind,
        "old_status": old,
        "new_status": new,
    }
    return Event(queue, json.dumps(data))  # in ASCII: no line ends in it

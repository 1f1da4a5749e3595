"""Connections to the HTTP port: anybody may open them, so they are bounded."""

import asyncio
import logging
import resource
from time import monotonic
from typing import Any, ClassVar

import structlog
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from pgwake.seldom import Seldom

log = structlog.get_logger()

MAX_CONNECTIONS = 250
SHARE_OF_DESCRIPTORS = 4  # the rest is for the database, commands, and posted jobs
IDLE_SECONDS = 10.0  # until the headers of a request are whole
STALLED_SECONDS = 30.0  # for which a client may read nothing of its answer
LOOK_SECONDS = 1.0
BACKLOG = 32  # accepted at once, before any of them can be refused

_NO_DESCRIPTORS = "socket.accept() out of system resource"  # as asyncio says it


def max_connections() -> int:
    """How many connections there may be: well below the limit of descriptors."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return MAX_CONNECTIONS
    return max(8, min(MAX_CONNECTIONS, limit // SHARE_OF_DESCRIPTORS))


class _Rarely(logging.Filter):
    """Passes a message on now and then: uvicorn warns of each request it can't read."""

    def __init__(self) -> None:
        super().__init__()
        self._seldom: dict[str, Seldom] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        return bool(self._seldom.setdefault(str(record.msg), Seldom()).count())


_logger = logging.getLogger("pgwake.http")
_logger.addFilter(_Rarely())


class BoundedProtocol(H11Protocol):
    """A connection that has to make progress, one of a bounded number.

    Where there are too many, the one that has waited longest for a request makes room:
    so whoever holds connections open without asking keeps nobody from asking.
    """

    most: ClassVar[int] = MAX_CONNECTIONS
    _refused: ClassVar[Seldom] = Seldom()

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.logger = _logger
        self._seen: tuple[object, ...] = ()
        self._since = monotonic()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        """Take it, and close one if there are too many."""
        super().connection_made(transport)
        if len(self.connections) <= self.most:
            return
        waiting = [c for c in self._others() if not c.is_busy]
        spare = min(waiting, key=lambda c: c._since, default=self)  # noqa: SLF001
        self.connections.discard(spare)
        spare.transport.abort()
        if count := self._refused.count():
            log.warning("too many HTTP connections", most=self.most, closed=count)

    def _others(self) -> "list[BoundedProtocol]":
        return [
            c for c in self.connections if isinstance(c, BoundedProtocol) and c != self
        ]

    @property
    def is_busy(self) -> bool:
        """Whether a request is being answered."""
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is not None and not cycle.response_complete

    def look(self) -> None:
        """Close it if nothing has moved for too long.

        What a client sends is no progress until it makes a request; what it reads of an
        answer is. A stream of events that has nothing to tell may last for ever.
        """
        unread = self.transport.get_write_buffer_size()
        seen = (self.cycle, self.is_busy, unread)
        if seen != self._seen:
            self._seen, self._since = seen, monotonic()
            return
        silent = monotonic() - self._since
        is_idle = not self.is_busy and silent > IDLE_SECONDS
        if is_idle or (unread and silent > STALLED_SECONDS):
            self.transport.abort()


async def watch(connections: set[Any]) -> None:
    """Look after the connections for ever."""
    seldom = Seldom()

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if context.get("message") != _NO_DESCRIPTORS:
            loop.default_exception_handler(context)
        elif count := seldom.count():
            log.error("no descriptors left for HTTP connections", count=count)

    asyncio.get_running_loop().set_exception_handler(handle)
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        for connection in list(connections):
            connection.look()

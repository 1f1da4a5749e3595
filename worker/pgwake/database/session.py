"""Sessions that come back: each loop has one of its own, never from a pool."""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable
from contextlib import suppress
from time import monotonic
from typing import NamedTuple, TypeVar

import structlog

from pgwake.database.connection import (
    LOST,
    Connection,
    backoff,
    check_writable,
    connect,
    describe,
    is_transient,
)
from pgwake.errors import ConfigurationError
from pgwake.heartbeat import Heartbeat
from pgwake.sleep import pause

T = TypeVar("T")

log = structlog.get_logger()

_AT_ONCE = ("40001", "40P01")  # serialization failure, deadlock

# By URL: when a session of this process last lost its server, on the monotonic clock.
# After a failover the others, idle meanwhile, may still have the old one: it would be
# silent until their own time-out, or answer from before, should it come back.
_lost_at: dict[str, float] = {}
# By URL: the sessions, each of its loop, that wait for their server.
_waiting: defaultdict[str, set[tuple[asyncio.AbstractEventLoop, asyncio.Event]]] = (
    defaultdict(set)
)
_GONE = ("08", "57P", "25006")  # connection, operator, read-only


async def wait_out(dsn: str, seconds: float) -> None:
    """Wait for a server, no longer than until another session has found it."""
    found = asyncio.Event()
    waiter = asyncio.get_running_loop(), found
    _waiting[dsn].add(waiter)
    try:
        await pause(found, seconds)
    finally:
        _waiting[dsn].discard(waiter)


def tell_found(dsn: str) -> None:
    """Let those try again that wait for a server: one has just had its answer."""
    for loop, found in list(_waiting[dsn]):
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(found.set)


class Outage(NamedTuple):
    """Why a session has no answer: since when, on the monotonic clock, and SQLSTATE."""

    since: float
    code: str | None


class Session:
    """One connection, opened when needed, replaced when it fails; calls take turns.

    Args:
        dsn: The database's URL.
        name: The application_name.
        role: What it is for, in the log.
        timeout: Deadline of a connect and of a call, in seconds.
        after: A session that has to be open before this one, and is opened by it: where
            the server has no room for both, a claim whose end can't be written helps
            nobody.

    Attributes:
        up_since: When its connection was opened, on the monotonic clock; None: it has
            none.
        answered_at: When the last call had its answer, likewise.
        fault: Why the call that goes on has no answer yet; None: nothing is wrong.
        failed_at: When a call last lost its connection, on the monotonic clock.
        cut_pid: The server's process of a call that was cancelled; it may still do it.
    """

    def __init__(
        self,
        dsn: str,
        name: str,
        role: str,
        timeout: float,
        after: "Session | None" = None,
    ) -> None:
        self.role = role
        self.up_since: float | None = None
        self.answered_at: float | None = None
        self.fault: Outage | None = None
        self.failed_at: float | None = None
        self.cut_pid: int | None = None
        self.dsn = dsn
        self._name = name
        self.timeout = timeout
        self._after = after
        self._connection: Connection | None = None
        self._turn = asyncio.Lock()
        self._dialling = asyncio.Lock()

    async def call(
        self, query: Callable[[Connection], Awaitable[T]], *, is_first: bool = False
    ) -> T:
        """Run a query until it has an answer; repeat what failed for a passing reason.

        Only for statements that may be run twice, as all of pgwake's may: a lost
        answer is asked for again. That the server refuses the session itself passes
        too: somebody is changing a password, or restoring the database.

        Args:
            query: What to ask.
            is_first: Raise the refusal of a session: it was never different.

        Raises:
            asyncpg.PostgresError: The statement was refused, and would be again.
        """
        failures = 0
        heartbeat = Heartbeat.current()
        if heartbeat is not None:
            heartbeat.rest()
        async with self._turn:
            seen_at = max(self.answered_at or 0.0, self.up_since or 0.0)
            if _lost_at.get(self.dsn, 0.0) > seen_at:
                self.close()
            try:
                while True:
                    if heartbeat is not None:
                        heartbeat.beat()
                    try:
                        async with asyncio.timeout(self.timeout):
                            answer = await query(await self.connected())
                    except Exception as error:
                        refused = self._connection is None and not is_first
                        is_wrong = is_first and isinstance(error, ConfigurationError)
                        if is_wrong or not (refused or is_transient(error)):
                            self.answered_at = monotonic()  # no is an answer, too
                            raise
                        failures += 1
                        await self._recover(error, failures)
                    except BaseException:
                        if self._connection is not None:
                            self.cut_pid = self._connection.get_server_pid()
                        self.close()  # cancelled in the middle of a statement
                        raise
                    else:
                        if failures:
                            log.info(
                                "session recovered", role=self.role, failures=failures
                            )
                        if (self.up_since or 0.0) > (self.answered_at or 0.0):
                            tell_found(self.dsn)
                        self.answered_at = monotonic()
                        return answer
            finally:
                self.fault = None

    async def open(self) -> None:
        """Have a connection, and try until there is one."""
        if self._connection is None or self._connection.is_closed():
            await self.call(check_writable)

    async def connected(self) -> Connection:
        """Return the connection, opened if need be; for who comes after it, too."""
        async with self._dialling:
            if self._connection is not None and self._connection.is_closed():
                self.close()
            if self._connection is None:
                if self._after is not None:
                    await self._after.connected()
                self._connection = await connect(self.dsn, self._name, self.timeout)
                self.up_since = monotonic()
            return self._connection

    async def _recover(self, error: Exception, failures: int) -> None:
        code = getattr(error, "sqlstate", None) or ""
        if failures <= 3 and code in _AT_ONCE:
            return
        self.failed_at = monotonic()
        is_gone = isinstance(error, LOST) or code.startswith(_GONE)
        if is_gone and self._connection is not None:
            _lost_at[self.dsn] = self.failed_at
        self.close()
        since = self.failed_at if self.fault is None else self.fault.since
        self.fault = Outage(since, code or None)
        report = log.warning if failures == 1 else log.debug
        report(
            "session failed",
            role=self.role,
            error=describe(error),
            failures=failures,
        )
        await wait_out(self.dsn, backoff(failures))

    def close(self) -> None:
        """Drop the connection at once: a polite close would wait for a dead server."""
        if self._connection is not None:
            self._connection.terminate()
        self._connection = None
        self.up_since = None

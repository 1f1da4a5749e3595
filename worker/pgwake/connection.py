"""Connections that come back: each loop has a session of its own, never from a pool."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Any, NamedTuple, TypeAlias, TypeVar

import asyncpg
import structlog

from pgwake.pulse import Pulse

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
T = TypeVar("T")


class Fault(NamedTuple):
    """Why a session has no answer: since when, on the monotonic clock, and SQLSTATE."""

    since: float
    code: str | None


log = structlog.get_logger()

_LOST = (
    OSError,
    TimeoutError,
    EOFError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
)
FAULTS = (*_LOST, asyncpg.PostgresError)  # what may end a session that listens

# Set on every session, so that what a role or a database sets for others can't break a
# statement of ours: a raised isolation level would make contention an error, and a
# time-out made for web requests would end the upkeep.
#
# Not on a pooler's: the settings would stay behind in a session that others use too. A
# pooler answers with a process id that is not the server's, so there it sets nothing.
_SESSION = """
select set_config(s.name, s.setting, false)
from (
  values
    ('default_transaction_isolation', 'read committed'),
    ('default_transaction_deferrable', 'off'),
    ('statement_timeout', '{statement_ms}'),
    ('lock_timeout', '0'),
    ('idle_in_transaction_session_timeout', '0'),
    ('idle_session_timeout', '0'),
    ('transaction_timeout', '0'),
    ('jit', 'off')
) as s(name, setting)
where pg_backend_pid() = {pid}
  and exists (select from pg_catalog.pg_settings as p where p.name = s.name)
"""

# By class or code of SQLSTATE: connection, resources, operator, system; serialization
# failure, deadlock, lock not available, read-only (a demoted primary), idle time-out.
_TRANSIENT = ("08", "53", "57", "58", "40001", "40P01", "55P03", "25006", "25P03")
_AT_ONCE = ("40001", "40P01")

# What a session's user may have left in it; as discard all, but for what is prepared.
_RESET = """
set session authorization default;
reset all;
close all;
unlisten *;
select pg_advisory_unlock_all();
discard temp;
"""

MAX_BACKOFF_SECONDS = 2.0


class _PooledConnection(asyncpg.Connection):
    """A session that a pooler gives, perhaps another one for each transaction.

    Nothing may be left in it that outlasts a transaction: no setting, prepared
    statement, session lock or LISTEN.
    """

    __slots__ = ()


async def connect(dsn: str, name: str, timeout: float) -> Connection:  # noqa: ASYNC109
    """Open a session with a deadline for all of it.

    Args:
        dsn: The database's URL.
        name: The application_name, by which operators and supervisors know it.
        timeout: Seconds for the connect, and for each statement on the server.
    """
    options: dict[str, Any] = {
        "timeout": timeout,
        "server_settings": {"application_name": name[:63]},
    }
    async with asyncio.timeout(timeout):
        connection: Connection = await asyncpg.connect(dsn, **options)
        try:
            # By the simple protocol, which prepares nothing.
            done = await connection.execute(_session(connection, timeout))
        except BaseException:
            connection.terminate()
            raise
        if done != "SELECT 0":
            return connection
        connection.terminate()
        return await asyncpg.connect(
            dsn,
            connection_class=_PooledConnection,
            statement_cache_size=0,
            **options,
        )


async def reset(connection: Connection, timeout: float) -> None:  # noqa: ASYNC109
    """Make a session of connect() as it was, whatever its user has set in it."""
    if not is_pooled(connection):
        await connection.execute(_RESET + _session(connection, timeout))


def _session(connection: Connection, timeout: float) -> str:
    return _SESSION.format(
        statement_ms=int(timeout * 1000), pid=connection.get_server_pid()
    )


def is_pooled(connection: Connection) -> bool:
    """Whether a session of connect() may be another one for each transaction."""
    return type(connection) is _PooledConnection  # isinstance is asyncpg's own here


def is_transient(error: BaseException) -> bool:
    """Whether the same statement may succeed later, perhaps on another session."""
    if isinstance(error, asyncpg.PostgresError):
        return (error.sqlstate or "").startswith(_TRANSIENT) or isinstance(
            error, asyncpg.InvalidCachedStatementError
        )
    return isinstance(error, _LOST)


def describe(error: BaseException) -> str:
    """What a fault is, in one line; without DETAIL, which may show a row's payload."""
    text = str(error)
    if isinstance(error, asyncpg.PostgresError) and error.message is not None:
        text = f"{error.message} ({error.sqlstate})"
    return f"{type(error).__name__}: {text}"


def backoff(attempt: int, cap: float = MAX_BACKOFF_SECONDS) -> float:
    """Seconds to wait before this attempt to connect (1, 2, ...): full jitter."""
    return random.uniform(0.02, min(cap, 0.1 * 2 ** min(attempt, 10)))  # noqa: S311


# By URL: when a session of this process last lost its server, on the monotonic clock.
# After a failover the others, idle meanwhile, may still have the old one: it would be
# silent until their own time-out, or answer from before, should it come back.
_lost_at: dict[str, float] = {}
_GONE = ("08", "57P", "25006")  # connection, operator, read-only; as in _TRANSIENT


class Session:
    """One connection, opened when needed, replaced when it fails; calls take turns.

    Args:
        dsn: The database's URL.
        name: The application_name.
        role: What it is for, in the log.
        timeout: Deadline of a connect and of a call, in seconds.

    Attributes:
        up_since: When its connection was opened, on the monotonic clock; None: it has
            none.
        answered_at: When the last call had its answer, likewise.
        fault: Why the call that goes on has no answer yet; None: nothing is wrong.
        failed_at: When a call last lost its connection, on the monotonic clock.
    """

    def __init__(
        self,
        dsn: str,
        name: str,
        role: str,
        timeout: float,
    ) -> None:
        self.role = role
        self.up_since: float | None = None
        self.answered_at: float | None = None
        self.fault: Fault | None = None
        self.failed_at: float | None = None
        self.dsn = dsn
        self._name = name
        self.timeout = timeout
        self._connection: Connection | None = None
        self._turn = asyncio.Lock()

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
        pulse = Pulse.current()
        if pulse is not None:
            pulse.rest()
        async with self._turn:
            if _lost_at.get(self.dsn, 0.0) > (self.answered_at or 0.0):
                self.close()
            try:
                while True:
                    if pulse is not None:
                        pulse.beat()
                    try:
                        async with asyncio.timeout(self.timeout):
                            answer = await query(await self._connected())
                    except Exception as error:
                        refused = self._connection is None and not is_first
                        if not (refused or is_transient(error)):
                            self.answered_at = monotonic()  # no is an answer, too
                            raise
                        failures += 1
                        await self._recover(error, failures)
                    except BaseException:
                        self.close()  # cancelled in the middle of a statement
                        raise
                    else:
                        if failures:
                            log.info(
                                "session recovered", role=self.role, failures=failures
                            )
                        self.answered_at = monotonic()
                        return answer
            finally:
                self.fault = None

    async def _connected(self) -> Connection:
        if self._connection is not None and self._connection.is_closed():
            self._connection = None
        if self._connection is None:
            self._connection = await connect(self.dsn, self._name, self.timeout)
            self.up_since = monotonic()
        return self._connection

    async def _recover(self, error: Exception, failures: int) -> None:
        code = getattr(error, "sqlstate", None) or ""
        if failures <= 3 and code in _AT_ONCE:
            return
        self.failed_at = monotonic()
        is_gone = isinstance(error, _LOST) or code.startswith(_GONE)
        if is_gone and self._connection is not None:
            _lost_at[self.dsn] = self.failed_at
        self.close()
        since = self.failed_at if self.fault is None else self.fault.since
        self.fault = Fault(since, code or None)
        report = log.warning if failures == 1 else log.debug
        report(
            "session failed",
            role=self.role,
            error=describe(error),
            failures=failures,
        )
        await asyncio.sleep(backoff(failures))

    def close(self) -> None:
        """Drop the connection at once: a polite close would wait for a dead server."""
        if self._connection is not None:
            self._connection.terminate()
        self._connection = None
        self.up_since = None

"""Connections: opened on the host that will do, set up for our statements, judged."""

import asyncio
import os
import random
import socket
import ssl
from asyncio.staggered import staggered_race
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import asyncpg
from asyncpg import connect_utils

from pgwake import forks
from pgwake.database.url import host_urls, must_write
from pgwake.errors import UnusableUrlError

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"

LOST = (
    OSError,
    TimeoutError,
    EOFError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
)
FAULTS = (*LOST, asyncpg.PostgresError)  # what may end a session that listens

# Set on every session, so that what a role or a database sets for others can't break a
# statement of ours: a raised isolation level would make contention an error, and a
# time-out made for web requests would end the upkeep. And so that the server finds out
# within a minute that our machine is gone: until then such a session keeps its locks.
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
    ('tcp_keepalives_idle', '30'),
    ('tcp_keepalives_interval', '10'),
    ('tcp_keepalives_count', '3'),
    ('tcp_user_timeout', '60000'),
    ('jit', 'off')
) as s(name, setting)
where pg_backend_pid() = {pid}
  and exists (select from pg_catalog.pg_settings as p where p.name = s.name)
"""

# By the simple protocol, on a pooler's session too.
_CHECK_WRITABLE = """
do $$
begin
  if pg_catalog.current_setting('transaction_read_only') = 'on' then
    raise read_only_sql_transaction using
      message = pg_catalog.format('the server at %s:%s is read-only',
        coalesce(pg_catalog.host(pg_catalog.inet_server_addr()), 'its socket'),
        pg_catalog.current_setting('port')),
      hint = 'It is a standby, or default_transaction_read_only is on.';
  end if;
end
$$
"""

# By class or code of SQLSTATE: connection, resources, operator, system; serialization
# failure, deadlock, lock not available, read-only (a demoted primary), idle time-out.
_TRANSIENT = ("08", "53", "57", "58", "40001", "40P01", "55P03", "25006", "25P03")

# What a session's user may have left in it; as discard all, but for what asyncpg has
# prepared. Should that be gone, this is refused with 26000.
_KEEP = "prepare pgwake_kept as select"
_RESET = """
set session authorization default;
execute pgwake_kept;
reset all;
close all;
unlisten *;
select pg_advisory_unlock_all();
discard temp;
discard sequences;
do $$
declare
  v_name text;
begin
  for v_name in
    select s.name from pg_catalog.pg_prepared_statements as s
    where s.from_sql and s.name <> 'pgwake_kept'
  loop
    execute pg_catalog.format('deallocate %I', v_name);
  end loop;
end
$$;
"""

# As _SESSION has them on the server's side; what the system lacks is left out.
_KEEPALIVE = {
    "TCP_KEEPIDLE": 30,
    "TCP_KEEPINTVL": 10,
    "TCP_KEEPCNT": 3,
    "TCP_USER_TIMEOUT": 60_000,
}

MAX_BACKOFF_SECONDS = 2.0
HOST_SECONDS = 1.0  # for which a host may be silent until the next is asked too


def _pass_by_unreadable_homes() -> None:
    """Let asyncpg do without keys in a home that it may not read, as libpq does.

    It has no setting for that: a user's with HOME=/root would get no session at all.
    """
    utils: Any = connect_utils
    find = utils._dot_postgresql_path  # noqa: SLF001

    def find_readable(name: str) -> Path | None:
        path: Path | None = find(name)
        try:
            if path is not None:
                os.stat(path)  # noqa: PTH116, Path.exists() hides why it can't say
        except (FileNotFoundError, NotADirectoryError):
            return path
        except OSError:
            return None
        return path

    utils._dot_postgresql_path = find_readable  # noqa: SLF001


_pass_by_unreadable_homes()


class _TlsRequest(connect_utils.TLSUpgradeProto):
    """asyncpg's question for TLS; where it was cancelled, nobody hears of its end."""

    on_data: asyncio.Future[bool]

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if not self.on_data.cancelled():
            self.on_data.exception()  # else asyncio logs that it was never retrieved


connect_utils.TLSUpgradeProto = _TlsRequest  # type: ignore[misc]


class SpoiltSessionError(asyncpg.InterfaceError):
    """A handler has set something in a session that nobody can take back."""


class _Connection(asyncpg.Connection):
    """A session that is lost, and says so, a minute after its server's machine is."""

    __slots__ = ("_socket", "is_spoilt")

    def __init__(
        self, protocol: Any, transport: asyncio.Transport, *arguments: Any
    ) -> None:
        super().__init__(protocol, transport, *arguments)
        opened: socket.socket = transport.get_extra_info("socket")
        self._socket = opened
        self.is_spoilt = False  # its user has set what can't be found and taken back
        forks.withhold(self)
        if opened.family == socket.AF_UNIX:
            return
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _KEEPALIVE.items():
            if hasattr(socket, name):
                opened.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)

    def fileno(self) -> int:
        """Return the descriptor of its socket; -1 when it is closed."""
        return self._socket.fileno()

    async def set_type_codec(self, *arguments: Any, **options: Any) -> None:
        self.is_spoilt = True
        await super().set_type_codec(*arguments, **options)

    async def set_builtin_type_codec(self, *arguments: Any, **options: Any) -> None:
        self.is_spoilt = True
        await super().set_builtin_type_codec(*arguments, **options)

    def add_termination_listener(self, callback: Any) -> None:
        self.is_spoilt = True
        super().add_termination_listener(callback)

    def add_query_logger(self, callback: Any) -> None:
        self.is_spoilt = True
        super().add_query_logger(callback)


class _PooledConnection(_Connection):
    """A session that a pooler gives, perhaps another one for each transaction.

    Nothing may be left in it that outlasts a transaction: no setting, prepared
    statement, session lock or LISTEN.
    """

    __slots__ = ()


async def open_session(
    dsn: str,
    name: str,
    timeout: float,  # noqa: ASYNC109
    *,
    writes: bool = True,
    pooled: bool = False,
) -> Connection:
    """Open a session as it comes, on the first of the URL's hosts that will do.

    Each host is asked when the one before has failed or has not answered for a second:
    one that is gone without a word would use up the deadline.

    Args:
        dsn: The database's URL.
        name: The application_name.
        timeout: Seconds for all of it.
        writes: Whether, of several hosts, only one will do that can write.
        pooled: Whether it may be another one for each transaction.

    Raises:
        UnusableUrlError: It can't be done as the URL says.
        TimeoutError: There was no answer in time.
        OSError: There is no way to any host.
        asyncpg.PostgresError: The server has refused it; 25006 if it can't write.
    """
    urls = host_urls(dsn)
    stated = must_write(dsn)
    is_checked = (writes and len(urls) > 1) if stated is None else stated
    opened: list[Connection] = []

    async def dial(url: str) -> Connection:
        # A host's share: one that is silent is not waited for when the others refuse.
        async with asyncio.timeout(timeout / len(urls)):
            connection = await _dial(url, name, timeout, pooled=pooled)
            opened.append(connection)
            if is_checked:
                await check_writable(connection)
            return connection

    winner: Connection | None = None
    try:
        async with _deadline(timeout):
            if len(urls) == 1:
                winner = await dial(dsn)
            else:
                dials = [partial(dial, url) for url in urls]
                winner, _, errors = await staggered_race(dials, HOST_SECONDS)
                if winner is None:
                    raise _most_telling(errors)
    finally:
        for connection in opened:
            if connection is not winner:
                connection.terminate()
    return winner


@asynccontextmanager
async def _deadline(seconds: float) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError as error:
        raise TimeoutError(f"no answer within {seconds:g} s") from error


async def _dial(
    url: str,
    name: str,
    timeout: float,  # noqa: ASYNC109
    *,
    pooled: bool,
) -> Connection:
    options: dict[str, Any] = {
        "timeout": timeout,
        "target_session_attrs": "any",  # asyncpg's own check prepares a statement
        "server_settings": {"application_name": name[:63]},
        "connection_class": _PooledConnection if pooled else _Connection,
    }
    if pooled:
        options["statement_cache_size"] = 0
    try:
        connection: Connection = await asyncpg.connect(url, **options)
    except asyncpg.exceptions.ClientConfigurationError as error:
        raise UnusableUrlError(f"the database's URL: {error}") from error
    except ssl.SSLCertVerificationError as error:
        raise UnusableUrlError(
            f"the server's certificate is refused: {error.verify_message}. With "
            "sslmode=verify-full, sslrootcert names a file with the authority that has "
            "signed it, and the URL has the host as the certificate names it"
        ) from error
    return connection


def _most_telling(errors: Sequence[Exception | None]) -> Exception:
    """Return the refusal that waiting won't help against; else an answer; else any."""

    def weight(error: Exception) -> int:
        return 2 * (not is_transient(error)) + isinstance(error, asyncpg.PostgresError)

    return max((error for error in errors if error is not None), key=weight)


async def check_writable(connection: Connection) -> None:
    """Find out whether a session is alive, and its server still takes writes.

    Raises:
        asyncpg.ReadOnlySQLTransactionError: It does not; a connection fault.
    """
    await connection.execute(_CHECK_WRITABLE)


async def connect(
    dsn: str,
    name: str,
    timeout: float,  # noqa: ASYNC109
    *,
    writes: bool = True,
) -> Connection:
    """Open a session with a deadline for all of it.

    Args:
        dsn: The database's URL.
        name: The application_name, by which operators and supervisors know it.
        timeout: Seconds for the connect, and for each statement on the server.
        writes: Whether, of several hosts, only one will do that can write.

    Raises:
        OSError, asyncpg.PostgresError: As open_session().
    """
    async with _deadline(timeout):
        connection = await open_session(dsn, name, timeout, writes=writes)
        try:
            # By the simple protocol, which prepares nothing.
            done = await connection.execute(_session(connection, timeout))
        except BaseException:
            connection.terminate()
            raise
        if done != "SELECT 0":
            return connection
        connection.terminate()
        return await open_session(dsn, name, timeout, writes=writes, pooled=True)


async def lend(connection: Connection) -> None:
    """Note in a session of connect() what reset() looks for."""
    if not is_pooled(connection):
        await connection.execute(_KEEP)


async def reset(connection: Connection, timeout: float) -> None:  # noqa: ASYNC109
    """Make a session that was lent as it was, whatever its user has set in it.

    Raises:
        SpoiltSessionError: It can't be.
        asyncpg.PostgresError: Nor can it, or it is lost.
    """
    if getattr(connection, "is_spoilt", False):
        raise SpoiltSessionError("the session is spoilt")
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
    return isinstance(error, LOST)


def describe(error: BaseException) -> str:
    """What a fault is, in one line; without DETAIL, which may show a row's payload."""
    text = str(error)
    if isinstance(error, asyncpg.PostgresError) and error.message is not None:
        text = f"{error.message} ({error.sqlstate})"
    elif isinstance(error, asyncpg.InternalClientError):
        # What asyncpg says once it has read that the server ends the session.
        text = f"the session has ended ({text})"
    return f"{type(error).__name__}: {text}"


def backoff(attempt: int, cap: float = MAX_BACKOFF_SECONDS) -> float:
    """Seconds to wait before this attempt to connect (1, 2, ...): full jitter."""
    return random.uniform(0.02, min(cap, 0.1 * 2 ** min(attempt, 10)))  # noqa: S311

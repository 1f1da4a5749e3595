"""Poolers: whether LISTEN works through the one that stands before the database."""

import asyncio
from time import monotonic
from uuid import uuid4

from pgwake.database.connection import Connection, connect, is_pooled

DELIVERY_SECONDS = 2.0
_TRIES = 20


class PooledError(Exception):
    """A transaction pooler stands before the database: LISTEN can't work."""


async def check_listening(
    connection: Connection,
    dsn: str,
    name: str,
    timeout: float,  # noqa: ASYNC109
) -> None:
    """Find out by trying whether a session hears what another one sends.

    A direct connection does. One through a pooler does if it keeps its session for as
    long as the client stays, and not for a transaction; nothing else shows which.

    Args:
        connection: The session to try.
        dsn: Its database's URL, for the other session.
        name: The application_name of that.
        timeout: Deadline of its connect, in seconds.

    Raises:
        PooledError: It doesn't.
    """
    if not is_pooled(connection):
        return
    other = await connect(dsn, name, timeout)
    try:
        if await _is_shared(connection, other):
            raise PooledError
        if await delivery_seconds(connection, other) is None:
            raise PooledError
    finally:
        other.terminate()


async def _is_shared(connection: Connection, other: Connection) -> bool:
    """Whether both are seen in the same session of the server.

    Most poolers lend what was given back last, so this finds nearly all of them, and
    leaves nothing behind; to be seen apart means nothing.
    """
    for _ in range(_TRIES):
        pid = await connection.fetchval("select pg_backend_pid()")
        if pid == await other.fetchval("select pg_backend_pid()"):
            return True
    return False


async def delivery_seconds(connection: Connection, other: Connection) -> float | None:
    """Return how long a notification of the other session takes; None: not heard."""
    channel = f"pgwake_{uuid4().hex}"
    heard = asyncio.Event()

    def hear(*_: object) -> None:
        heard.set()

    async with connection.transaction():
        pid = await connection.fetchval("select pg_backend_pid()")
        await connection.add_listener(channel, hear)
    sent_at = monotonic()
    await other.execute(f"notify {channel}")
    try:
        async with asyncio.timeout(DELIVERY_SECONDS):
            await heard.wait()
    except TimeoutError:
        await _tidy(connection, channel, pid)
        return None
    seconds = monotonic() - sent_at
    await connection.remove_listener(channel, hear)
    return seconds


async def _tidy(connection: Connection, channel: str, pid: int) -> None:
    """Take the LISTEN back from the shared session, if it is given once more."""
    for _ in range(_TRIES):
        async with connection.transaction():
            if await connection.fetchval("select pg_backend_pid()") == pid:
                await connection.execute(f"unlisten {channel}")
                return

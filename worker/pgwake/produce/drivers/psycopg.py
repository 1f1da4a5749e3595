"""psycopg 3: a connection or a pool, asynchronous or not."""

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.rows import tuple_row

from pgwake.database.statements import produce
from pgwake.produce.drivers.base import AsyncAdapter, SyncAdapter
from pgwake.produce.options import COLUMNS

if TYPE_CHECKING:
    from psycopg_pool import AsyncConnectionPool, ConnectionPool

_COPY = produce.copy(COLUMNS).encode()


class ConnectionAdapter(SyncAdapter):
    """Asks on a connection, in its transaction."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection

    def fetch(self, sql: str, *arguments: Any) -> Sequence[Any]:
        """Run a statement."""
        # Not connection.cursor(): its owner may have chosen another class of them.
        with psycopg.Cursor(self._connection, row_factory=tuple_row) as cursor:
            cursor.execute(*_marked(sql, arguments))
            return cursor.fetchall() if cursor.description else []

    def copy(self, chunks: Iterable[str]) -> None:
        """COPY text."""
        with (
            psycopg.Cursor(self._connection) as cursor,
            cursor.copy(_COPY) as copy,
        ):
            for chunk in chunks:
                copy.write(chunk)


class PoolAdapter(SyncAdapter):
    """Asks on a connection of a pool, each time in a transaction of its own."""

    is_pool = True

    def __init__(self, pool: "ConnectionPool[Any]") -> None:
        self._pool = pool

    def fetch(self, sql: str, *arguments: Any) -> Sequence[Any]:
        """Run a statement."""
        with self._pool.connection() as connection:
            return ConnectionAdapter(connection).fetch(sql, *arguments)

    def copy(self, chunks: Iterable[str]) -> None:
        """COPY text."""
        with self._pool.connection() as connection:
            ConnectionAdapter(connection).copy(chunks)


class AsyncConnectionAdapter(AsyncAdapter):
    """Asks on a connection, in its transaction."""

    def __init__(self, connection: psycopg.AsyncConnection[Any]) -> None:
        self._connection = connection

    async def fetch(self, sql: str, *arguments: Any) -> Sequence[Any]:
        """Run a statement."""
        cursor = psycopg.AsyncCursor(self._connection, row_factory=tuple_row)
        async with cursor:
            await cursor.execute(*_marked(sql, arguments))
            return await cursor.fetchall() if cursor.description else []

    async def copy(self, chunks: Iterable[str]) -> None:
        """COPY text."""
        async with (
            psycopg.AsyncCursor(self._connection) as cursor,
            cursor.copy(_COPY) as copy,
        ):
            for chunk in chunks:
                await copy.write(chunk)


class AsyncPoolAdapter(AsyncAdapter):
    """Asks on a connection of a pool, each time in a transaction of its own."""

    is_pool = True

    def __init__(self, pool: "AsyncConnectionPool[Any]") -> None:
        self._pool = pool

    async def fetch(self, sql: str, *arguments: Any) -> Sequence[Any]:
        """Run a statement."""
        async with self._pool.connection() as connection:
            return await AsyncConnectionAdapter(connection).fetch(sql, *arguments)

    async def copy(self, chunks: Iterable[str]) -> None:
        """COPY text."""
        async with self._pool.connection() as connection:
            await AsyncConnectionAdapter(connection).copy(chunks)


def adapt(target: object) -> AsyncAdapter | SyncAdapter | None:
    """Return the adapter, or None for what is neither a connection nor a pool."""
    if isinstance(target, psycopg.Connection):
        return ConnectionAdapter(target)
    if isinstance(target, psycopg.AsyncConnection):
        return AsyncConnectionAdapter(target)
    try:
        import psycopg_pool  # noqa: PLC0415, it is a package of its own
    except ImportError:
        return None
    if isinstance(target, psycopg_pool.ConnectionPool):
        return PoolAdapter(target)
    if isinstance(target, psycopg_pool.AsyncConnectionPool):
        return AsyncPoolAdapter(target)
    return None


def _marked(
    sql: str, arguments: Sequence[Any]
) -> tuple[bytes] | tuple[bytes, dict[str, Any]]:
    """The statement with psycopg's marks, and the arguments by their names."""
    if not arguments:
        return (sql.encode(),)  # where a % is just that
    named = {f"a{number}": value for number, value in enumerate(arguments, 1)}
    return re.sub(r"\$(\d+)", r"%(a\1)s", sql).encode(), named

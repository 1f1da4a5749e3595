"""asyncpg: a connection, a pool, or a URL."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
from asyncpg.pool import PoolConnectionProxy

from pgwake.database.connection import Connection, open_session
from pgwake.produce.drivers.base import AsyncAdapter
from pgwake.produce.options import COLUMNS

CONNECT_SECONDS = 10.0
QUERY_SECONDS = 30.0
LEND_SECONDS = 30.0  # to wait for a free connection; and for one to be clean again
POOL_SIZE = 5


class ConnectionAdapter(AsyncAdapter):
    """Asks on a connection, in the transaction that its owner has begun, if any."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def fetch(self, sql: str, *arguments: Any) -> Sequence[Any]:
        """Run a statement."""
        rows: Sequence[Any] = await self._connection.fetch(sql, *arguments)
        return rows

    async def copy(self, chunks: Iterable[str]) -> None:
        """COPY text."""
        await self._connection.copy_to_table(
            "jobs",
            schema_name="pgwake",
            columns=COLUMNS,
            source=_encoded(chunks),
            format="text",
        )


class PoolAdapter(AsyncAdapter):
    """Asks on a connection of a pool, each time in a transaction of its own."""

    is_pool = True

    def __init__(self, pool: Any) -> None:
        self._pool = pool

    async def fetch(self, sql: str, *arguments: Any) -> Sequence[Any]:
        """Run a statement."""
        async with self._pool.acquire() as connection:
            return await ConnectionAdapter(connection).fetch(sql, *arguments)

    async def copy(self, chunks: Iterable[str]) -> None:
        """COPY text."""
        async with self._pool.acquire() as connection:
            await ConnectionAdapter(connection).copy(chunks)


class UrlAdapter(AsyncAdapter):
    """Asks on a connection of a small pool of its own, opened when it is needed.

    It works through a transaction pooler too, and for one event loop after the other.
    """

    is_pool = True

    def __init__(self, url: str) -> None:
        self._url = url
        self._pool: asyncpg.Pool[asyncpg.Record] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def fetch(self, sql: str, *arguments: Any) -> Sequence[Any]:
        """Run a statement."""
        async with self._lent() as connection:
            try:
                async with asyncio.timeout(QUERY_SECONDS):
                    return await ConnectionAdapter(connection).fetch(sql, *arguments)
            except TimeoutError:
                # Else the pool would wait as long again for the cancellation.
                connection.terminate()
                raise

    async def copy(self, chunks: Iterable[str]) -> None:
        """COPY text."""
        async with self._lent() as connection:
            await ConnectionAdapter(connection).copy(chunks)

    @asynccontextmanager
    async def _lent(self) -> AsyncIterator[Any]:
        pool = await self._opened()
        try:
            async with pool.acquire(timeout=LEND_SECONDS) as connection:
                yield connection
        except asyncpg.ReadOnlySQLTransactionError:
            # The server has been demoted; the next session may find another.
            await pool.expire_connections()
            raise

    async def _opened(self) -> "asyncpg.Pool[asyncpg.Record]":
        loop = asyncio.get_running_loop()
        if self._pool is None or self._loop is not loop:
            self._loop = loop
            self._pool = await asyncpg.create_pool(  # no wait: it opens none yet
                min_size=0, max_size=POOL_SIZE, connect=self._connect
            )
        return self._pool

    async def _connect(self, *_: Any, **__: Any) -> Connection:
        return await open_session(
            self._url, "pgwake:producer", CONNECT_SECONDS, pooled=True
        )

    async def close(self) -> None:
        """Close the pool."""
        pool, self._pool = self._pool, None
        if pool is not None and self._loop is asyncio.get_running_loop():
            await pool.close()


def adapt(target: object) -> AsyncAdapter | None:
    """Return the adapter, or None for what is neither a connection nor a pool."""
    if isinstance(target, asyncpg.Pool):
        return PoolAdapter(target)
    if isinstance(target, asyncpg.Connection | PoolConnectionProxy):
        return ConnectionAdapter(target)
    return None


async def _encoded(chunks: Iterable[str]) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk.encode()

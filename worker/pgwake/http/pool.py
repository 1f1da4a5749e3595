"""The API's connections to the database."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar, cast

import asyncpg

from pgwake.database import connection as connections
from pgwake.database.connection import Connection, is_transient
from pgwake.database.statements import http

T = TypeVar("T")

SIZE = 4
READ_SECONDS = 5.0  # the API is for people and dashboards, and jobs come before them
RELEASE_SECONDS = 2.0


class Pool:
    """At most four connections, opened when they are needed, for one loop.

    Args:
        dsn: The database's URL.
        name: The application_name.
        timeout: Seconds for a connect, and for a statement; in all for twice as long.
    """

    def __init__(self, dsn: str, name: str, timeout: float) -> None:
        self._dsn = dsn
        self._name = name
        self._timeout = timeout
        self._pool: asyncpg.Pool[asyncpg.Record] | None = None

    async def read(self, query: Callable[[Connection], Awaitable[T]]) -> T:
        """Ask in a transaction that only reads; once more on another connection.

        Raises:
            TimeoutError: There was no answer in time.
            OSError: There is no connection.
            asyncpg.PostgresError: The server has refused it.
        """
        seconds = min(READ_SECONDS, self._timeout)
        async with asyncio.timeout(2 * seconds):
            try:
                return await self._ask(query, seconds, may_write=False)
            except Exception as error:
                # Not again what took too long: the database has enough to do.
                too_long = isinstance(error, asyncpg.QueryCanceledError | TimeoutError)
                if too_long or not is_transient(error):
                    raise
                if self._pool is not None:
                    await self._pool.expire_connections()
                return await self._ask(query, seconds, may_write=False)

    async def write(self, query: Callable[[Connection], Awaitable[T]]) -> T:
        """Ask in a transaction that is committed; once.

        Raises:
            TimeoutError: There was no answer in time: whether it is committed, nobody
                knows.
            OSError: There is no connection.
            asyncpg.PostgresError: The server has refused it; nothing is committed.
        """
        try:
            return await self._ask(query, self._timeout, may_write=True)
        except asyncpg.ReadOnlySQLTransactionError:
            # The server has been demoted; the next session may find another.
            if self._pool is not None:
                await self._pool.expire_connections()
            raise

    async def _ask(
        self,
        query: Callable[[Connection], Awaitable[T]],
        seconds: float,
        *,
        may_write: bool,
    ) -> T:
        if self._pool is None:
            self._pool = await asyncpg.create_pool(  # waits for nothing yet
                min_size=0, max_size=SIZE, connect=self._connect, reset=_keep
            )
        async with asyncio.timeout(2 * seconds):
            lent = await self._pool.acquire()
            connection = cast(Connection, lent)
            is_over = False
            try:
                # The server gives up first, and says why.
                await http.begin(connection, int(seconds * 1000), may_write=may_write)
                answer = await query(connection)
                await http.commit(connection)
                is_over = True
                return answer
            finally:
                await asyncio.shield(self._release(lent, is_over=is_over))

    async def _connect(self, *_: Any, **__: Any) -> Connection:
        return await connections.connect(self._dsn, self._name, self._timeout)

    async def _release(self, lent: Any, *, is_over: bool) -> None:
        """Take a connection back, and close it if it can't be used again."""
        try:
            async with asyncio.timeout(RELEASE_SECONDS):
                # Not only where a transaction is known: one may be just beginning.
                if not is_over:
                    await http.rollback(lent)  # waits until a query is cancelled
        except connections.FAULTS:
            lent.terminate()
        if self._pool is not None:
            with suppress(*connections.FAULTS):
                await self._pool.release(lent, timeout=RELEASE_SECONDS)

    def close(self) -> None:
        """Close all connections at once."""
        if self._pool is not None:
            self._pool.terminate()


async def _keep(_: object) -> None:
    """Do nothing to a connection that comes back: all that was set has ended."""

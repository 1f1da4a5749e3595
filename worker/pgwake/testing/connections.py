"""A user's own connection, of whatever driver, in place of a session of pgwake's."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import Executor
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeAlias, TypeVar, cast

import asyncpg

from pgwake.database.connection import Connection
from pgwake.database.session import Session
from pgwake.errors import ConfigurationError, InvalidValueError
from pgwake.produce.drivers import AsyncAdapter, SyncAdapter, adapt
from pgwake.produce.drivers.refusals import said_by_server

T = TypeVar("T")

Adapter: TypeAlias = AsyncAdapter | SyncAdapter


def adapter_of(connection: object) -> Adapter:
    """Return the adapter of a connection.

    Raises:
        InvalidValueError: It is none, or one of many.
    """
    with suppress(ConfigurationError):
        adapter = adapt(connection)
        if not adapter.is_pool:
            return adapter
    kind = f"{type(connection).__module__}.{type(connection).__qualname__}"
    raise InvalidValueError(
        f"on({kind}): pass a connection of asyncpg or psycopg 3, an SQLAlchemy session"
        " or connection on one of them, or django.db.connection"
    )


class BorrowedSession(Session):
    """A session on a connection that somebody else has opened, and will close.

    In an open transaction every call has a savepoint, so that one which the server
    refuses does not abort it. Statements are run by its own fetch and fetchval: they
    use no more of a connection.

    Args:
        adapter: How that connection is asked.
        threads: Where it is asked, if that blocks; None: in a thread of the loop's.

    Attributes:
        is_in_transaction: Whether the call that goes on is part of a transaction of
            the user's.
    """

    def __init__(self, adapter: Adapter, threads: Executor | None) -> None:
        self.timeout = 0.0  # none of its own
        self.adapter = adapter
        self.is_in_transaction = False
        self._threads = threads

    async def call(
        self, query: Callable[[Connection], Awaitable[T]], *, is_first: bool = False
    ) -> T:
        """Ask once; what fails is raised."""
        del is_first
        async with self.savepoint("pgwake_step") as self.is_in_transaction:
            return await query(cast("Connection", self))

    @asynccontextmanager
    async def savepoint(self, name: str) -> AsyncIterator[bool]:
        """Undo the block if it fails, or leaves the transaction aborted.

        Yields:
            Whether there is a transaction; else nothing can be undone.
        """
        try:
            await self.fetch(f"savepoint {name}")
        except asyncpg.NoActiveSQLTransactionError:
            yield False
            return
        try:
            yield True
        except Exception:
            await self.fetch(f"rollback to savepoint {name}")
            raise
        try:
            await self.fetch(f"release savepoint {name}")
        except asyncpg.InFailedSQLTransactionError:
            await self.fetch(f"rollback to savepoint {name}")

    async def fetch(self, sql: str, *arguments: Any) -> Sequence[Any]:
        """Run a statement; its rows.

        Raises:
            asyncpg.PostgresError: The server refuses it, whatever the driver.
        """
        try:
            if isinstance(self.adapter, AsyncAdapter):
                return await self.adapter.fetch(sql, *arguments)
            return await asyncio.get_running_loop().run_in_executor(
                self._threads, self.adapter.fetch, sql, *arguments
            )
        except Exception as error:
            said = said_by_server(error)
            if said is None or said is error:
                raise
            raise said from error

    async def fetchval(self, sql: str, *arguments: Any) -> Any:
        """Run a statement; its one value."""
        ((value,),) = await self.fetch(sql, *arguments)
        return value

    def close(self) -> None:
        """Leave it open: it is not ours."""

"""A user's own connection, of whatever driver, in place of a session of pgwake's."""

import inspect
import re
import sys
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, cast

import asyncpg
from asyncpg.pool import PoolConnectionProxy

from pgwake.database.connection import Connection
from pgwake.database.session import Session
from pgwake.errors import InvalidValueError

T = TypeVar("T")

_PLACE = re.compile(r"\$(\d+)")
_STEP, _HANDLER = "pgwake_step", "pgwake_handler"


class Borrowed(Session):
    """A session on a connection that somebody else has opened, and will close.

    In an open transaction every call has a savepoint, so that one which the server
    refuses does not abort it.

    Attributes:
        given: That connection: of asyncpg or psycopg 3, an SQLAlchemy session or
            connection on one of them, or Django's.
    """

    def __init__(self, connection: object) -> None:
        self.timeout = 0.0  # none of its own
        self.given = connection
        self._found: Connection | None = None

    async def call(
        self, query: Callable[[Connection], Awaitable[T]], *, is_first: bool = False
    ) -> T:
        """Ask once; what fails is raised."""
        del is_first
        connection = await self._statements()
        if not connection.is_in_transaction():
            return await query(connection)
        await connection.execute(f"savepoint {_STEP}")
        try:
            answer = await query(connection)
        except BaseException:
            await connection.execute(f"rollback to savepoint {_STEP}")
            raise
        await connection.execute(f"release savepoint {_STEP}")
        return answer

    async def is_in_transaction(self) -> bool:
        """Whether what is done here is part of a transaction of the user's."""
        return (await self._statements()).is_in_transaction()

    async def before_handler(self) -> None:
        """Mark the place that a handler may have to be rolled back to."""
        connection = await self._statements()
        if connection.is_in_transaction():
            await connection.execute(f"savepoint {_HANDLER}")

    async def after_handler(self) -> None:
        """Undo what a handler did in the transaction if it has left it aborted."""
        connection = await self._statements()
        if not connection.is_in_transaction():
            return
        try:
            await connection.execute(f"release savepoint {_HANDLER}")
        except asyncpg.InFailedSQLTransactionError:
            await connection.execute(f"rollback to savepoint {_HANDLER}")

    def close(self) -> None:
        """Leave it open: it is not ours."""

    async def _statements(self) -> Connection:
        if self._found is None:
            self._found = await _statements(self.given)
        return self._found


def beneath_django(connection: Any) -> object:
    """Return psycopg's connection of Django's, which is one of the calling thread's."""
    if callable(getattr(connection, "ensure_connection", None)):
        connection.ensure_connection()
        connection = connection.connection
    return connection


async def _statements(given: Any) -> Connection:
    """Return what takes pgwake's statements, for any connection that is supported.

    Raises:
        InvalidValueError: It is none.
    """
    found = given
    # By its bases, since SQLModel has a session of its own.
    if any(base.__module__.startswith("sqlalchemy.") for base in type(found).__mro__):
        found = await _driver_of_sqlalchemy(found)
    if isinstance(found, asyncpg.Connection | PoolConnectionProxy):
        return cast("Connection", found)
    psycopg = sys.modules.get("psycopg")
    if psycopg and isinstance(found, psycopg.Connection | psycopg.AsyncConnection):
        return cast("Connection", _OfPsycopg(found))
    kind = f"{type(given).__module__}.{type(given).__qualname__}"
    raise InvalidValueError(
        f"on({kind}): pass a connection of asyncpg or psycopg 3, an SQLAlchemy session"
        " or connection on one of them, or django.db.connection"
    )


async def _driver_of_sqlalchemy(found: Any) -> Any:
    if hasattr(found, "get_bind"):  # a session
        found = await _settled(found.connection())
    if hasattr(found, "get_raw_connection"):
        return (await found.get_raw_connection()).driver_connection
    return getattr(getattr(found, "connection", None), "driver_connection", found)


class _OfPsycopg:
    """What pgwake uses of an asyncpg connection, on one of psycopg's."""

    def __init__(self, connection: Any) -> None:
        self._psycopg = sys.modules["psycopg"]
        self._connection = connection

    def is_in_transaction(self) -> bool:
        idle = self._psycopg.pq.TransactionStatus.IDLE
        status = self._connection.info.transaction_status
        return bool(status != idle or not self._connection.autocommit)

    async def execute(self, sql: str) -> str:
        return str((await self._run(sql)).statusmessage)

    async def fetch(self, sql: str, *arguments: Any) -> list[Any]:
        rows: list[Any] = await _settled((await self._run(sql, *arguments)).fetchall())
        return rows

    async def fetchrow(self, sql: str, *arguments: Any) -> Any:
        return await _settled((await self._run(sql, *arguments)).fetchone())

    async def fetchval(self, sql: str, *arguments: Any) -> Any:
        row = await self.fetchrow(sql, *arguments)
        return row and row[0]

    async def _run(self, sql: str, *arguments: Any) -> Any:
        psycopg = self._psycopg
        is_async = isinstance(self._connection, psycopg.AsyncConnection)
        # Not the connection's own class of cursor: it may answer with other rows.
        cursor = (psycopg.AsyncCursor if is_async else psycopg.Cursor)(
            self._connection, row_factory=psycopg.rows.tuple_row
        )
        named = {f"a{n}": value for n, value in enumerate(arguments, 1)}
        try:
            await _settled(
                cursor.execute(_PLACE.sub(r"%(a\1)s", sql), named)
                if named
                else cursor.execute(sql)
            )
        except psycopg.Error as error:
            diag = error.diag
            raise asyncpg.PostgresError.new(
                {
                    "C": error.sqlstate or "XX000",
                    "M": diag.message_primary or str(error),
                    "H": diag.message_hint,
                    "s": diag.schema_name,
                    "n": diag.constraint_name,
                }
            ) from error
        return cursor


async def _settled(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value

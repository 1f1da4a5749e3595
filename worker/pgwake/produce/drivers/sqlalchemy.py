"""SQLAlchemy 2: a session, a connection or an engine, asynchronous or not."""

import re
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeAlias

from sqlalchemy import Connection, Engine, TextClause, text
from sqlalchemy.ext.asyncio import (
    AsyncConnection,
    AsyncEngine,
    AsyncSession,
    async_scoped_session,
)
from sqlalchemy.orm import Session, scoped_session

from pgwake.errors import ConfigurationError
from pgwake.produce import drivers as adapters
from pgwake.produce.drivers.base import AsyncAdapter, SyncAdapter

_Target: TypeAlias = Connection | Engine | Session | scoped_session[Any]
_AsyncTarget: TypeAlias = (
    AsyncConnection | AsyncEngine | AsyncSession | async_scoped_session[Any]
)


class BlockingAdapter(SyncAdapter):
    """Asks in the transaction of a session or a connection, or in one of an engine."""

    def __init__(self, target: _Target) -> None:
        self._target = target
        self.is_pool = isinstance(target, Engine)

    def fetch(self, sql: str, *arguments: Any) -> Sequence[Any]:
        """Run a statement."""
        with self._connection() as connection:
            answer = connection.execute(*_marked(sql, arguments))
            return answer.all() if answer.returns_rows else []

    def copy(self, chunks: Iterable[str]) -> None:
        """COPY text."""
        with self._connection() as connection:
            _begin(connection)
            driver = adapters.adapt(connection.connection.driver_connection)
            if not isinstance(driver, SyncAdapter):
                raise ConfigurationError(_WRONG_DRIVER)
            driver.copy(chunks)

    @contextmanager
    def _connection(self) -> Iterator[Connection]:
        match self._target:
            case Engine() as engine:
                with engine.begin() as connection:
                    yield connection
            case Connection() as connection:
                yield connection
            case session:
                yield session.connection()


class AwaitingAdapter(AsyncAdapter):
    """Asks in the transaction of a session or a connection, or in one of an engine."""

    def __init__(self, target: _AsyncTarget) -> None:
        self._target = target
        self.is_pool = isinstance(target, AsyncEngine)

    async def fetch(self, sql: str, *arguments: Any) -> Sequence[Any]:
        """Run a statement."""
        async with self._connection() as connection:
            answer = await connection.execute(*_marked(sql, arguments))
            return answer.all() if answer.returns_rows else []

    async def copy(self, chunks: Iterable[str]) -> None:
        """COPY text."""
        async with self._connection() as connection:
            await connection.run_sync(_begin)
            raw = await connection.get_raw_connection()
            driver = adapters.adapt(raw.driver_connection)
            if not isinstance(driver, AsyncAdapter):
                raise ConfigurationError(_WRONG_DRIVER)
            await driver.copy(chunks)

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[AsyncConnection]:
        match self._target:
            case AsyncEngine() as engine:
                async with engine.begin() as connection:
                    yield connection
            case AsyncConnection() as connection:
                yield connection
            case session:
                yield await session.connection()


_WRONG_DRIVER = "copy works through asyncpg and psycopg 3: use one, or enqueue_many"


def adapt(target: object) -> AsyncAdapter | SyncAdapter | None:
    """Return the adapter, or None for what is no session, connection or engine."""
    if isinstance(target, Session | scoped_session | Connection | Engine):
        return BlockingAdapter(target)
    if isinstance(
        target, AsyncSession | async_scoped_session | AsyncConnection | AsyncEngine
    ):
        return AwaitingAdapter(target)
    return None


def _marked(sql: str, arguments: Sequence[Any]) -> tuple[TextClause, dict[str, Any]]:
    """The statement with SQLAlchemy's marks, and the arguments by their names."""
    named = {f"a{number}": value for number, value in enumerate(arguments, 1)}
    return text(re.sub(r"\$(\d+)", r"(:a\1)", sql)), named


def _begin(connection: Connection) -> None:
    """Begin its transaction, if none is begun: it knows nothing of what COPY does."""
    connection.execute(text("select"))

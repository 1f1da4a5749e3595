"""Each kind of connection that a producer may hold, for tests that hold for all."""

import contextlib
import inspect
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import asyncpg
import django
import django.conf
import django.db
import psycopg
import psycopg_pool
import sqlalchemy
import sqlalchemy.ext.asyncio
from sqlalchemy import orm
from sqlalchemy.engine import URL, make_url

from pgwake import AsyncQueue, Queue, SyncQueue

if not django.conf.settings.configured:
    django.conf.settings.configure(USE_TZ=True, LOGGING_CONFIG=None)
    django.setup()


@dataclass(frozen=True)
class Producer:
    """A queue on a connection, and what the connection's owner does beside it.

    Args:
        queue: The queue.
        transaction: Begin one, to be committed at the end of the block, or rolled back
            by an exception; within another it is a savepoint.
    """

    queue: AsyncQueue | SyncQueue
    transaction: Callable[[], AbstractAsyncContextManager[None]]

    async def __call__(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """Call a method of the queue, and wait for it if it is asynchronous."""
        answer = getattr(self.queue, method)(*args, **kwargs)
        return await answer if inspect.isawaitable(answer) else answer


@asynccontextmanager
async def _entered(manager: Any) -> AsyncIterator[None]:
    """Enter a context manager of either kind."""
    if hasattr(manager, "__aenter__"):
        async with manager:
            yield
    else:
        with manager:
            yield


@asynccontextmanager
async def of_asyncpg(url: str) -> AsyncIterator[Producer]:
    connection = await asyncpg.connect(url)
    try:
        yield Producer(Queue(connection), lambda: _entered(connection.transaction()))
    finally:
        await connection.close()


@asynccontextmanager
async def of_asyncpg_proxy(url: str) -> AsyncIterator[Producer]:
    """A connection that was borrowed from a pool."""
    async with asyncpg.create_pool(url, min_size=0) as pool, pool.acquire() as borrowed:
        yield Producer(Queue(borrowed), lambda: _entered(borrowed.transaction()))


@asynccontextmanager
async def of_psycopg(url: str) -> AsyncIterator[Producer]:
    # As an application may have set it: none of it is to matter.
    with psycopg.connect(
        url, row_factory=psycopg.rows.dict_row, cursor_factory=psycopg.RawCursor
    ) as connection:
        yield Producer(Queue(connection), lambda: _entered(connection.transaction()))


@asynccontextmanager
async def of_async_psycopg(url: str) -> AsyncIterator[Producer]:
    async with await psycopg.AsyncConnection.connect(
        url, row_factory=psycopg.rows.dict_row, autocommit=True
    ) as connection:
        yield Producer(Queue(connection), lambda: _entered(connection.transaction()))


def sqlalchemy_url(url: str, driver: str) -> URL:
    return make_url(url).set(drivername=f"postgresql+{driver}")


def _of_sqlalchemy(session: Any) -> Producer:
    def transaction() -> AbstractAsyncContextManager[None]:
        nested = session.in_transaction()
        return _entered(session.begin_nested() if nested else session.begin())

    return Producer(Queue(session), transaction)


@asynccontextmanager
async def of_session(url: str) -> AsyncIterator[Producer]:
    engine = sqlalchemy.create_engine(sqlalchemy_url(url, "psycopg"))
    with orm.Session(engine) as session:
        yield _of_sqlalchemy(session)
    engine.dispose()


@asynccontextmanager
async def of_sqlalchemy_connection(url: str) -> AsyncIterator[Producer]:
    engine = sqlalchemy.create_engine(sqlalchemy_url(url, "psycopg"))
    with engine.connect() as connection:
        yield _of_sqlalchemy(connection)
    engine.dispose()


@asynccontextmanager
async def of_async_session(url: str) -> AsyncIterator[Producer]:
    engine = sqlalchemy.ext.asyncio.create_async_engine(sqlalchemy_url(url, "asyncpg"))
    async with sqlalchemy.ext.asyncio.AsyncSession(engine) as session:
        yield _of_sqlalchemy(session)
    await engine.dispose()


@asynccontextmanager
async def of_async_sqlalchemy_connection(url: str) -> AsyncIterator[Producer]:
    engine = sqlalchemy.ext.asyncio.create_async_engine(sqlalchemy_url(url, "psycopg"))
    async with engine.connect() as connection:
        yield _of_sqlalchemy(connection)
    await engine.dispose()


@contextlib.contextmanager
def _django_connection(url: str) -> Any:
    parts = make_url(url)
    configured = django.db.connections.configure_settings(
        {
            "default": {
                "ENGINE": "django.db.backends.postgresql",
                "HOST": parts.host,
                "PORT": parts.port,
                "NAME": parts.database,
                "USER": parts.username,
                "PASSWORD": parts.password,
            }
        }
    )
    django.db.connections.settings.update(configured)
    try:
        yield django.db.connection
    finally:
        django.db.connection.close()
        del django.db.connections["default"]


@asynccontextmanager
async def of_django(url: str) -> AsyncIterator[Producer]:
    """Needs DJANGO_ALLOW_ASYNC_UNSAFE, since the tests run in a loop."""
    with _django_connection(url) as connection:
        yield Producer(
            Queue(connection), lambda: _entered(django.db.transaction.atomic())
        )


CONNECTIONS = [
    of_asyncpg,
    of_asyncpg_proxy,
    of_psycopg,
    of_async_psycopg,
    of_session,
    of_sqlalchemy_connection,
    of_async_session,
    of_async_sqlalchemy_connection,
    of_django,
]


@asynccontextmanager
async def of_url(url: str) -> AsyncIterator[Producer]:
    async with Queue(url) as queue:
        yield Producer(queue, contextlib.nullcontext)


@asynccontextmanager
async def of_asyncpg_pool(url: str) -> AsyncIterator[Producer]:
    async with asyncpg.create_pool(url, min_size=0) as pool:
        yield Producer(Queue(pool), contextlib.nullcontext)


@asynccontextmanager
async def of_psycopg_pool(url: str) -> AsyncIterator[Producer]:
    with psycopg_pool.ConnectionPool(url, min_size=1, open=True) as pool:
        yield Producer(Queue(pool), contextlib.nullcontext)


@asynccontextmanager
async def of_async_psycopg_pool(url: str) -> AsyncIterator[Producer]:
    async with psycopg_pool.AsyncConnectionPool(url, min_size=1, open=False) as pool:
        yield Producer(Queue(pool), contextlib.nullcontext)


@asynccontextmanager
async def of_engine(url: str) -> AsyncIterator[Producer]:
    engine = sqlalchemy.create_engine(sqlalchemy_url(url, "psycopg"))
    yield Producer(Queue(engine), contextlib.nullcontext)
    engine.dispose()


@asynccontextmanager
async def of_async_engine(url: str) -> AsyncIterator[Producer]:
    engine = sqlalchemy.ext.asyncio.create_async_engine(sqlalchemy_url(url, "asyncpg"))
    yield Producer(Queue(engine), contextlib.nullcontext)
    await engine.dispose()


POOLS = [
    of_url,
    of_asyncpg_pool,
    of_psycopg_pool,
    of_async_psycopg_pool,
    of_engine,
    of_async_engine,
]

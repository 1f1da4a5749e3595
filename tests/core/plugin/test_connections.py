"""pgwake.testing on a user's own connection, in a transaction that is rolled back."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

import asyncpg
import psycopg
import psycopg_pool
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from pgwake import Registry
from pgwake.errors import InvalidValueError
from pgwake.testing import Jobs, SyncJobs
from support import Connect, Connection

Do: TypeAlias = Callable[[str], Awaitable[Any]]


@asynccontextmanager
async def of_asyncpg(url: str) -> AsyncIterator[tuple[Any, Do]]:
    connection = await asyncpg.connect(url)
    transaction = connection.transaction()
    await transaction.start()
    yield connection, connection.execute
    await transaction.rollback()
    await connection.close()


@asynccontextmanager
async def of_an_asyncpg_pool(url: str) -> AsyncIterator[tuple[Any, Do]]:
    async def init(connection: Any) -> None:
        await connection.set_type_codec(
            "jsonb", schema="pg_catalog", encoder=json.dumps, decoder=json.loads
        )

    async with (
        asyncpg.create_pool(url, min_size=1, init=init) as pool,
        pool.acquire() as connection,
    ):
        await connection.execute("begin")
        yield connection, connection.execute
        await connection.execute("rollback")


@asynccontextmanager
async def of_psycopg(url: str) -> AsyncIterator[tuple[Any, Do]]:
    async with await psycopg.AsyncConnection.connect(
        url, row_factory=psycopg.rows.dict_row
    ) as connection:
        yield connection, connection.execute
        await connection.rollback()


@asynccontextmanager
async def of_sync_psycopg(url: str) -> AsyncIterator[tuple[Any, Do]]:
    with psycopg.connect(url) as connection:

        async def do(sql: str) -> None:
            connection.execute(sql)

        yield connection, do
        connection.rollback()


def engine_url(url: str, driver: str) -> str:
    return url.replace("postgresql", f"postgresql+{driver}", 1)


def sqlalchemy_on(driver: str) -> Any:
    @asynccontextmanager
    async def opened(url: str) -> AsyncIterator[tuple[Any, Do]]:
        engine = create_async_engine(engine_url(url, driver), poolclass=NullPool)
        async with AsyncSession(engine) as session:
            yield session, lambda sql: session.execute(sqlalchemy.text(sql))
            await session.rollback()
        async with engine.connect() as connection:
            assert await Jobs.of(url).on(connection).enqueued() == []
        await engine.dispose()

    return opened


DRIVERS = {
    "asyncpg": of_asyncpg,
    "asyncpg pool with codecs": of_an_asyncpg_pool,
    "psycopg": of_psycopg,
    "psycopg, blocking": of_sync_psycopg,
    "SQLAlchemy on asyncpg": sqlalchemy_on("asyncpg"),
    "SQLAlchemy on psycopg": sqlalchemy_on("psycopg"),
}


@pytest.mark.parametrize("driver", DRIVERS.values(), ids=DRIVERS)
async def test_jobs_of_an_open_transaction_are_run_in_it(
    driver: Any, database: str, connection: Connection
) -> None:
    registry = Registry()
    do: Do

    @registry.job("sum", max_attempts=2, backoff_base=60, backoff_jitter=0)
    async def add(a: int, b: int = 0) -> dict[str, int]:
        return {"sum": a + b}

    @registry.job("huge", max_attempts=1)
    def huge() -> str:
        return "x" * 2_000_000

    @registry.job("abort", max_attempts=1)
    async def abort() -> None:
        await do("insert into pgwake.jobs (kind) values ('never')")
        await do("select 1 / 0")

    @registry.job("chain")
    async def chain() -> None:
        await do(
            """insert into pgwake.jobs (kind, payload) values ('sum', '{"a": 4}')"""
        )

    async with driver(database) as (user, do):
        jobs = Jobs.of(database, registry).on(user)
        await do("""select pgwake.enqueue('sum', '{"a": 1, "b": 2}')""")
        await do("select pgwake.enqueue('sum')")
        await do("select pgwake.enqueue('huge')")
        await do("select pgwake.enqueue('abort')")
        await do("select pgwake.enqueue('chain')")
        await do("""select pgwake.enqueue('sum', '{"a": 9}', delay => '1 day')""")
        await jobs.assert_enqueued("sum", {"a": 1}, count=1)
        await jobs.assert_enqueued("sum", delay=86_400, count=1)

        runs = await jobs.run_due(raises=False)
        assert [(run.kind, run.status, run.result) for run in runs] == [
            ("sum", "completed", {"sum": 3}),
            ("sum", "failed", None),
            ("huge", "failed", None),
            ("abort", "failed", None),
            ("chain", "completed", None),
            ("sum", "completed", {"sum": 4}),
        ]
        assert "division by zero" in str(runs[3].error)
        await jobs.assert_not_enqueued("never")  # what aborted was undone
        await jobs.move_clock(86_401)
        (run,) = await jobs.run_due()
        assert run.result == {"sum": 9}
        assert jobs.forgotten() == []

    assert await connection.fetchval("select count(*) from pgwake.jobs") == 0
    assert await connection.fetchval("select pgwake.now() = now()")


async def test_what_a_handler_raises_is_raised_and_the_transaction_goes_on(
    database: str, connection: Connection
) -> None:
    registry = Registry()

    @registry.job("bad")
    async def bad() -> None:
        await connection.execute("select nonsense")

    jobs = Jobs.of(database, registry).on(connection)
    async with connection.transaction():
        await connection.execute("select pgwake.enqueue('bad')")
        with pytest.raises(asyncpg.UndefinedColumnError):
            await jobs.run_due()
        (job,) = await jobs.enqueued()
        assert job.attempt == 1


async def test_without_a_transaction_each_step_is_committed(
    connect: Connect, database: str
) -> None:
    registry = Registry()

    @registry.job("a")
    async def handler() -> None: ...

    mine = await connect()
    other = await connect()
    await mine.execute("select pgwake.enqueue('a', delay => '1 hour')")
    jobs = Jobs.of(database, registry).on(mine)
    await jobs.move_clock(3601)
    assert len(await jobs.run_due()) == 1
    assert await other.fetchval("select status from pgwake.jobs") == "completed"
    assert await other.fetchval("select pgwake.now() = now()")


def test_a_plain_test_works_in_its_own_transaction_too(database: str) -> None:
    registry = Registry()

    @registry.job("plain")
    def plain(a: int) -> int:
        return a

    engine = sqlalchemy.create_engine(
        engine_url(database, "psycopg"), poolclass=NullPool
    )
    jobs = SyncJobs.of(database, registry)
    text = sqlalchemy.text("select pgwake.enqueue('plain', jsonb_build_object('a', 5))")
    with Session(engine) as session:
        session.execute(text)
        (run,) = jobs.on(session).run_due()
        assert run.result == 5
    with engine.connect() as connection:
        connection.execute(text)
        (run,) = jobs.on(connection).run_due()
        assert run.status == "completed"
        connection.rollback()
    with psycopg.connect(database) as own:
        own.execute("select pgwake.enqueue('plain', delay => '1 s')")
        on = jobs.on(own)
        on.assert_enqueued("plain", count=1)
        on.move_clock(2)
        with pytest.raises(AssertionError, match="a: Field required"):
            on.run_due()
        own.rollback()
    jobs.assert_not_enqueued("plain")


@pytest.mark.parametrize("wrong", [None, "postgresql://x/y", object()])
async def test_what_is_no_connection_is_refused(database: str, wrong: object) -> None:
    with pytest.raises(InvalidValueError, match=r"^on\(builtins\..*pass a connection"):
        await Jobs.of(database).on(wrong).run_due()


@pytest.mark.parametrize(
    "make",
    [
        asyncpg.create_pool,
        lambda url: psycopg_pool.ConnectionPool(url, open=False),
        lambda url: psycopg_pool.AsyncConnectionPool(url, open=False),
        lambda url: sqlalchemy.create_engine(engine_url(url, "psycopg")),
        lambda url: create_async_engine(engine_url(url, "asyncpg")),
    ],
    ids=["asyncpg", "psycopg", "psycopg async", "SQLAlchemy", "SQLAlchemy async"],
)
async def test_what_gives_many_connections_is_refused(database: str, make: Any) -> None:
    with pytest.raises(InvalidValueError, match="pass a connection"):
        await Jobs.of(database).on(make(database)).run_due()


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
async def test_a_session_that_has_begun_nothing_begins_its_transaction(
    driver: str, database: str, connection: Connection
) -> None:
    registry = Registry()

    @registry.job("a")
    async def handler() -> None: ...

    engine = create_async_engine(engine_url(database, driver), poolclass=NullPool)
    async with AsyncSession(engine) as session:
        await Jobs.of(database, registry).on(session).declare()
        await session.rollback()
    assert await connection.fetchval("select count(*) from pgwake.kinds") == 0

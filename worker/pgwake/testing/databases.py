"""Databases for tests: one template with the schema, one clone a test."""

import os
import secrets
import shutil
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg

from pgwake.database.connection import Connection, connect
from pgwake.database.embedded import EmbeddedServer
from pgwake.database.install import install
from pgwake.database.session import Session
from pgwake.database.statements import testing
from pgwake.database.statements.install import adopt
from pgwake.errors import ConfigurationError
from pgwake.testing.threads import CallersThread

WORKER = "pgwake.testing"
TIMEOUT = 60.0  # seconds for each statement

_FAST = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}


@contextmanager
def embedded_server() -> Iterator[str]:
    """Start a server of the tests' own; the URL of its superuser.

    Raises:
        ConfigurationError: No server's programs were found.
        EmbeddedServerError: It did not start.
    """
    directory = directory_in_memory()
    settings = {**_FAST, "max_connections": "200"}
    with EmbeddedServer(directory, settings=settings) as server:
        yield server.url
    if directory is not None:
        shutil.rmtree(directory)


def directory_in_memory() -> Path | None:
    """Where a database is cloned in a thirtieth of the time that a disk takes."""
    memory = Path("/dev/shm")  # noqa: S108, the directory in it has a random name
    if not os.access(memory, os.W_OK) or shutil.disk_usage(memory).free < 2 << 30:
        return None
    return memory / f"pgwake-{secrets.token_hex(4)}"


@contextmanager
def database(server: str, template: str | None = None) -> Iterator[str]:
    """Make a database, with pgwake's schema or a template's clone; its URL.

    Raises:
        ConfigurationError: Somebody is still connected to the template.
    """
    name = f"pgwake_test_{secrets.token_hex(6)}"
    cloned = template and urlsplit(template).path[1:]
    try:
        _ask(server, lambda c: testing.create_database(c, name, cloned))
    except asyncpg.ObjectInUseError:
        raise ConfigurationError(
            "the template can't be cloned while somebody is connected to it: close what"
            " the fixture pgwake_schema has opened"
        ) from None
    try:
        url = urlsplit(server)._replace(path=f"/{name}").geturl()
        if template is None:
            CallersThread().run(install(url))
            _ask(url, lambda c: adopt(c, guard=False))  # its clones are to run jobs
        yield url
    finally:
        _ask(server, lambda c: testing.drop_database(c, name))


def open_session(url: str) -> Session:
    """Open a session to a database, of the worker that a test plays."""
    return Session(url, WORKER, "testing", TIMEOUT)


def _ask(url: str, query: Callable[[Connection], Awaitable[None]]) -> None:
    async def asking() -> None:
        connection = await connect(url, WORKER, TIMEOUT)  # fails at once, if it does
        try:
            await query(connection)
        finally:
            await connection.close(timeout=5)

    CallersThread().run(asking())

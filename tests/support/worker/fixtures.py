"""Worker processes, each started by a test and gone when it ends."""

import asyncio
import itertools
import json
import os
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pgwake.database.embedded import EmbeddedServer
from support import (
    OWNER,
    OWNER_PASSWORD,
    Connect,
    Connection,
    create_installed_database,
    database_url,
)
from support.worker.commands import type_command
from support.worker.pgbouncer import pgbouncer
from support.worker.processes import (
    Answer,
    Diary,
    Pgwake,
    StartProcess,
    WorkerProcess,
    clean_environment,
)

_serial = itertools.count(1)


@pytest.fixture(autouse=True)
def _only_the_tests_own_settings(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """No variable and no .env of whoever runs the tests reaches a worker."""
    for name in list(os.environ):
        if name.startswith("PGWAKE_") and not name.startswith("PGWAKE_TEST_"):
            monkeypatch.delenv(name)
    monkeypatch.delenv("DATABASE_URL", raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
async def connect(connect: Connect) -> Connect:
    """As the fixture it replaces, with jsonb as Python's objects."""

    async def connect_with_json(*arguments: Any, **options: Any) -> Connection:
        connection = await connect(*arguments, **options)
        await connection.set_type_codec(
            "jsonb", schema="pg_catalog", encoder=json.dumps, decoder=json.loads
        )
        return connection

    return connect_with_json


@pytest.fixture
def diary(tmp_path: Path) -> Diary:
    """Where the handlers of worker processes note what they do."""
    return Diary(tmp_path / "diary")


@pytest.fixture
async def start_process(tmp_path: Path, diary: Diary) -> AsyncIterator[StartProcess]:
    """Start `python` with arguments; keywords are PGWAKE_* variables, or TEST_*."""
    started: list[WorkerProcess] = []

    async def start(*arguments: str, **settings: object) -> WorkerProcess:
        environment = {
            "TEST_DIARY": str(diary.path),
            "PGWAKE_IMPORTS": "support.worker.handlers",
            "PGWAKE_HTTP_PORT": "0",
            "PGWAKE_POLL_INTERVAL": "3600",
            "PGWAKE_LOG_FORMAT": "json",
            "PGWAKE_CANCEL_GRACE": "1",
        }
        for name, value in settings.items():
            upper = name.upper()
            environment[upper if upper.startswith("TEST_") else f"PGWAKE_{upper}"] = (
                str(value)
            )
        process = await WorkerProcess.start(
            *arguments, directory=tmp_path, environment=environment
        )
        started.append(process)
        return process

    yield start
    await asyncio.gather(*(process.kill() for process in started))


@pytest.fixture
async def start_worker(start_process: StartProcess, database: str) -> StartProcess:
    """Start `pgwake run` on the test's database and wait until its workers work.

    Arguments are flags, keywords are settings, as PGWAKE_* variables.
    """

    async def start(*flags: str, **settings: object) -> WorkerProcess:
        given = {"database_url": database, "processes": 1, **settings}
        process = await start_process("-m", "pgwake", "run", *flags, **given)
        await process.started(count=int(str(given["processes"])))
        return process

    return start


@pytest.fixture
async def start_application(start_process: StartProcess, database: str) -> StartProcess:
    """Start an application with a worker inside, and wait until it works."""

    async def start(*arguments: str, **settings: object) -> WorkerProcess:
        given = {"database_url": database, **settings}
        process = await start_process(
            "-m", "support.worker.application", *arguments, **given
        )
        await process.started()
        return process

    return start


@pytest.fixture(scope="session")
def _spare_server(binaries: Path) -> Iterator[EmbeddedServer]:
    settings = {"fsync": "off", "max_connections": "200"}
    with EmbeddedServer(binaries=binaries, settings=settings) as server:
        create_installed_database(server, "spare_template")
        yield server


@pytest.fixture
def spare_server(_spare_server: EmbeddedServer) -> Iterator[EmbeddedServer]:
    """A server to halt and restart at will: it is up again for the next test."""
    yield _spare_server
    try:
        psycopg.connect(_spare_server.socket_url).close()
    except psycopg.OperationalError:
        _spare_server._launch()


@pytest.fixture
def spare_database(spare_server: EmbeddedServer) -> str:
    """The URL of a database of the test's own in it, as its owner."""
    name = f"spare_{next(_serial)}"
    with psycopg.connect(spare_server.socket_url, autocommit=True) as admin:
        admin.execute(f"alter role {OWNER} password '{OWNER_PASSWORD}'")
        admin.execute(f"create database {name} template spare_template owner {OWNER}")
    return database_url(spare_server, name)


@pytest.fixture
def pgwake_program(database: str, tmp_path: Path) -> Pgwake:
    """Run `python -m pgwake` on the test's database, to its end."""

    async def run(*arguments: str, stdin: str = "", **variables: str) -> Answer:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "pgwake", *arguments),
            cwd=tmp_path,
            env=clean_environment({"PGWAKE_DATABASE_URL": database, **variables}),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        output, errors = await process.communicate(stdin.encode())
        assert process.returncode is not None
        return Answer(process.returncode, output.decode(), errors.decode())

    return run


@pytest.fixture
def typed(database: str) -> Pgwake:
    """The same in this process, one at a time: an interpreter starts slowly."""
    turn = asyncio.Lock()

    async def run(*arguments: str, **variables: str) -> Answer:
        environment = clean_environment({"PGWAKE_DATABASE_URL": database, **variables})
        async with turn:
            return await asyncio.to_thread(type_command, environment, *arguments)

    return run


@pytest.fixture
def pgwake(typed: Pgwake, pgwake_program: Pgwake) -> Pgwake:
    """In this process, but for what starts or serves others."""

    async def run(command: str, *arguments: str, **variables: str) -> Answer:
        is_program = command in {"run", "serve", "bench", "chaos"}
        by = pgwake_program if is_program else typed
        return await by(command, *arguments, **variables)

    return run


@pytest.fixture
def transaction_pooler(database: str) -> Iterator[str]:
    """The URL of the test's database through a pooler that lends transactions."""
    with pgbouncer(database, "transaction") as url:
        yield url

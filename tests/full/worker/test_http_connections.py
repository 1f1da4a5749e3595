"""Connections that anybody may open, and a process that can open nothing itself."""

import asyncio
import resource
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Self

import pytest

from support import Connection, free_port
from support.sql.helpers import insert, job
from support.worker.api import TOKEN, serving
from support.worker.helpers import embedded, ended
from support.worker.metrics import fetch
from support.worker.processes import StartProcess
from support.worker.receiver import Receiver
from support.worker.registries import quick


class Opened:
    """Connections to a port, closed in the end."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._writers: list[asyncio.StreamWriter] = []

    async def __call__(self, sent: bytes = b"") -> asyncio.StreamReader:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        self._writers.append(writer)
        writer.write(sent)
        return reader

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for writer in self._writers:
            writer.transport.abort()
        await asyncio.sleep(0)


async def is_closed(reader: asyncio.StreamReader) -> bool:
    with suppress(ConnectionError):
        return (await reader.read()) == b""
    return True


@contextmanager
def descriptors(most: int) -> Iterator[None]:
    """Let what is started now have so many descriptors."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


async def test_more_idle_connections_than_descriptors_cost_no_job_and_few_lines(
    connection: Connection, start_process: StartProcess, database: str
) -> None:
    port = free_port()
    with descriptors(200):
        worker = await start_process(
            *("-m", "pgwake", "run", "--exec", "say=echo 1"),
            database_url=database,
            processes=1,
            http_port=port,
        )
    await worker.started()
    async with Opened(port) as opened:
        idle = [await opened(b"GET /he") for _ in range(300)]
        assert (await fetch(port, "/healthz")).status == 200
        row = await ended(connection, await insert(connection, "say"))
        assert (row["status"], row["result"], row["attempt"]) == ("completed", 1, 1)
        assert len(worker.log("too many HTTP connections")) == 1
        assert len(worker.lines) < 30
        for reader in idle[:200]:
            assert await is_closed(reader)


async def test_a_connection_has_to_make_progress(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pgwake.http.connections.IDLE_SECONDS", 0.3)
    monkeypatch.setattr("pgwake.http.connections.LOOK_SECONDS", 0.1)
    port = free_port()
    async with serving(database, http_port=port), Opened(port) as opened:
        silent, begun = await opened(), await opened(b"GET /healthz HT")
        # Answered, but the body that it declares never comes whole.
        posted = b"POST /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n1"
        half = await opened(posted)
        head = f"GET /api/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}"
        events = await opened(f"{head}\r\n\r\n".encode())
        assert await is_closed(silent)
        assert await is_closed(begun)
        assert b"405" in await half.read()
        await events.readuntil(b"event: reset")
        assert not events.at_eof()


async def test_what_is_no_http_is_a_line_now_and_then(
    database: str, caplog: pytest.LogCaptureFixture
) -> None:
    port = free_port()
    async with embedded(database, quick(), http_port=port), Opened(port) as opened:
        for _ in range(20):
            with suppress(ConnectionError):
                await (await opened(b"?\r\n\r\n")).read()
    told = [r for r in caplog.records if "Invalid HTTP" in r.getMessage()]
    assert len(told) <= 1


async def test_jobs_for_which_nothing_can_be_opened_are_put_off(
    connection: Connection, start_worker: StartProcess
) -> None:
    with Receiver().serve() as receiver:
        url = receiver.answer("/", 200, "done")
        worker = await start_worker(
            *("--exec", "say=echo 1", "--http", f"ask={url}"),
            *("--http", f"first={url.replace('127.0.0.1', 'localhost')}"),
            imports="support.worker.process_handlers",
            http_port=0,
        )
        await ended(connection, await insert(connection, "first"))  # opens sessions
        (child,) = worker.children
        _, most = resource.prlimit(child, resource.RLIMIT_NOFILE)
        resource.prlimit(child, resource.RLIMIT_NOFILE, (3, most))
        for kind in ("say", "ask", "pid"):
            job_id = await insert(connection, kind)
            await worker.logged("job released", job=job_id, reason="snooze")
            row = await job(connection, job_id)
            assert (row["status"], row["attempt"], row["errors"]) == (
                "pending",
                0,
                None,
            )
    assert len(worker.log("jobs put off for want of resources")) == 1

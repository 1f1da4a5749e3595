"""/healthz, /readyz, and a port that can't be had."""

import asyncio
import json
import signal
import socket
from pathlib import Path

import httpx
import pytest

from pgwake import Registry
from pgwake.errors import ConfigurationError
from pgwake.http.server import bind
from support import Connection, free_port, wait_for
from support.sql.helpers import insert
from support.worker.helpers import embedded, ended
from support.worker.metrics import fetch, fetch_blocking
from support.worker.processes import Diary, StartProcess
from support.worker.registries import quick


async def answers(port: int, path: str, status: int) -> list[str]:
    """Wait until a page has that status; the problems it names."""

    async def has_it() -> bool:
        try:
            return (await fetch(port, path)).status == status
        except ConnectionError:
            return False

    await wait_for(has_it)
    problems: list[str] = json.loads((await fetch(port, path)).text)["problems"]
    return problems


async def test_a_worker_that_works_is_healthy_and_ready(database: str) -> None:
    port = free_port()
    async with embedded(database, quick(), http_port=port):
        assert await answers(port, "/healthz", 200) == []
        assert await answers(port, "/readyz", 200) == []
        assert (await fetch(port, "/nowhere")).status == 404


async def test_a_worker_that_drains_is_healthy_and_not_ready(
    connection: Connection, start_worker: StartProcess, diary: Diary, tmp_path: Path
) -> None:
    port, go = free_port(), tmp_path / "go"
    worker = await start_worker(http_port=port)
    await insert(connection, "hold", payload={"until": str(go)})
    await diary.has(event="start")
    worker.send(signal.SIGTERM)

    assert await answers(port, "/readyz", 503) == ["draining"]
    assert await answers(port, "/healthz", 200) == []
    go.touch()
    assert await worker.exit_code() == 0


async def test_a_worker_whose_loop_is_blocked_is_not_healthy(
    connection: Connection, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pgwake.observe.health.MAIN_LAG_SECONDS", 1)
    port, registry = free_port(), Registry()

    @registry.job("block")
    async def block() -> list[str]:
        while True:  # and never lets go of the loop
            page = fetch_blocking(port, "/healthz")
            if page.status == 503:
                problems: list[str] = json.loads(page.text)["problems"]
                return problems

    async with embedded(database, registry, http_port=port):
        row = await ended(connection, await insert(connection, "block"))
        await answers(port, "/healthz", 200)

    assert row["result"] == ["the main loop has not answered for 1 s"]


async def test_a_port_that_is_taken_ends_the_worker_with_one_clear_line(
    start_process: StartProcess, database: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        worker = await start_process(
            *("-m", "pgwake", "run"),
            database_url=database,
            http_host="127.0.0.1",
            http_port=port,
        )
        assert await worker.exit_code() == 78

    (line,) = worker.log("worker can't start")
    assert f"port {port}" in line["problem"]
    assert "PGWAKE_HTTP_PORT" in line["problem"]
    # It is not tried again and again.
    assert len(worker.children) == 1


async def test_metrics_of_this_machine_are_told_to_no_page_that_has_taken_its_address(
    database: str,
) -> None:
    port = free_port()
    async with (
        embedded(database, quick(), http_port=port),
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client,
    ):
        await answers(port, "/healthz", 200)
        for host in ("127.0.0.1", "localhost:9808", "[::1]:80", "10.0.0.7", ""):
            answer = await client.get("/metrics", headers={"Host": host})
            assert answer.status_code == 200, host
        for host in (
            "page.example",
            "page.example:80",
            "127.0.0.1.page.example",
            "x:y",
        ):
            answer = await client.get("/metrics", headers={"Host": host})
            assert answer.status_code == 403, host
            assert "PGWAKE_HTTP_HOST" in answer.json()["hint"]
            assert (await client.get("/healthz", headers={"Host": host})).is_success


async def test_without_a_port_nothing_is_served(database: str) -> None:
    async with embedded(database, quick(), http_port=0) as worker:
        lifeline = worker._lifeline
        assert lifeline is not None
        assert lifeline._http_port == 0


async def test_a_client_that_says_nothing_does_not_hold_up_the_stop(
    database: str,
) -> None:
    port = free_port()
    async with asyncio.timeout(15):
        async with embedded(database, quick(), http_port=port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        writer.close()


@pytest.mark.parametrize("host", ["nowhere.invalid", "192.0.2.1"])
def test_a_host_that_is_elsewhere_is_told_with_what_to_set(host: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{host}.*PGWAKE_HTTP_HOST"):
        bind(host, free_port())

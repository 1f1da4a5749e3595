"""pgwake serve: HTTP without a worker."""

import asyncio
import signal
from collections.abc import Iterator

import psycopg
import pytest

from full.worker.test_http import answers
from pgwake.database.embedded import EmbeddedServer
from support import Connection, free_port, wait_for
from support.sql.helpers import insert
from support.worker.api import TOKEN, client, problem
from support.worker.metrics import Samples, fetch
from support.worker.processes import Pgwake, StartProcess, WorkerProcess
from support.worker.streams import Stream

READER, PASSWORD = "pgwake_reader", "reader"


async def serve(
    start_process: StartProcess, database: str, port: int, **settings: object
) -> WorkerProcess:
    given = {"database_url": database, "http_port": port, "api_token": TOKEN}
    process = await start_process("-m", "pgwake", "serve", **{**given, **settings})
    await process.logged("serving", port=port)
    return process


async def test_it_serves_what_a_worker_does_and_runs_no_jobs(
    connection: Connection, database: str, start_process: StartProcess
) -> None:
    port = free_port()
    job_id = await insert(connection, "noop")
    process = await serve(start_process, database, port)
    assert await answers(port, "/readyz", 200) == []
    assert await answers(port, "/healthz", 200) == []
    async with client(port) as api, Stream.of(api) as stream:
        assert (await api.get(f"/api/jobs/{job_id}")).json()["status"] == "pending"
        await stream.has("reset")
        pushed = await api.post("/queues/mail/push", json={"kind": "send"})
        assert pushed.status_code == 201
        await stream.has("job_status_changed", id=pushed.json()["ids"][0])

    async def shows_the_job() -> bool:
        samples = Samples((await fetch(port, "/metrics")).text)
        return samples.total("pgwake_queue_pending_jobs", queue="default") == 1

    await wait_for(shows_the_job)
    # It is no worker: an alert on workers that do not listen must not fire.
    metrics = (await fetch(port, "/metrics")).text
    assert "pgwake_listener_up" not in metrics
    assert await connection.fetchval("select count(*) from pgwake.workers") == 0
    process.send(signal.SIGTERM)
    assert await process.exit_code() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_it_with_its_open_streams(
    database: str, start_process: StartProcess, number: signal.Signals
) -> None:
    port = free_port()
    process = await serve(start_process, database, port)
    async with client(port) as api, Stream.of(api) as stream:
        await stream.has("reset")
        process.send(number)
        assert await process.exit_code() == 0
        await stream.until(lambda: stream.has_ended)
    assert process.log("serving ended")


async def test_it_starts_without_the_database_and_gets_ready_when_it_comes(
    spare_server: EmbeddedServer, spare_database: str, start_process: StartProcess
) -> None:
    await asyncio.to_thread(spare_server._halt, "immediate")
    port = free_port()
    await serve(start_process, spare_database, port)
    assert await answers(port, "/readyz", 503) == ["the database does not answer"]
    assert await answers(port, "/healthz", 200) == []
    async with client(port) as api, Stream.of(api) as stream:
        problem(await api.get("/api/queue/stats"), 503)
        await stream.has("poll")
        await asyncio.to_thread(spare_server._launch)
        assert await answers(port, "/readyz", 200) == []
        await stream.has("reset")
        assert (await api.get("/api/queue/stats")).status_code == 200


async def test_it_starts_without_the_schema_and_gets_ready_when_it_comes(
    spare_server: EmbeddedServer, start_process: StartProcess, pgwake: Pgwake
) -> None:
    with psycopg.connect(spare_server.socket_url, autocommit=True) as admin:
        admin.execute("create database bare")
    url = spare_server.url.rpartition("/")[0] + "/bare"
    port = free_port()
    process = await serve(start_process, url, port)
    (obstacle,) = await answers(port, "/readyz", 503)
    while obstacle == "the database does not answer":  # before the first look
        (obstacle,) = await answers(port, "/readyz", 503)
    assert obstacle.startswith("the database has no pgwake schema")
    assert process.log("database not usable")
    assert (await pgwake("init", "--database-url", url)).code == 0
    assert await answers(port, "/readyz", 200) == []


async def test_where_nothing_can_be_written_it_is_not_ready(
    connection: Connection, database: str, start_process: StartProcess
) -> None:
    port, name = free_port(), database.rpartition("/")[2]
    await connection.execute(
        f"alter database {name} set default_transaction_read_only = on"
    )
    await serve(start_process, database, port)

    async def is_named() -> bool:
        return await answers(port, "/readyz", 503) == ["the database is read-only"]

    await wait_for(is_named)
    async with client(port) as api:  # to read is what can be done
        assert (await api.get("/api/queue/stats")).status_code == 200


@pytest.fixture
def reader(admin_url: str) -> Iterator[str]:
    """The URL of the database for a role that may read tables and call functions."""
    with psycopg.connect(admin_url, autocommit=True) as admin:
        admin.execute(f"create role {READER} login password '{PASSWORD}'")
        for grant in (
            "usage on schema pgwake",
            "select on all tables in schema pgwake",
            "execute on all functions in schema pgwake",
        ):
            admin.execute(f"grant {grant} to {READER}")
        yield f"postgresql://{READER}:{PASSWORD}@{admin_url.rpartition('@')[2]}"
        admin.execute(f"drop owned by {READER}")
        admin.execute(f"drop role {READER}")


async def test_it_needs_no_right_to_write_tables(
    reader: str, start_process: StartProcess
) -> None:
    port = free_port()
    process = await serve(start_process, reader, port)
    assert await answers(port, "/readyz", 200) == []
    async with client(port) as api, Stream.of(api) as stream:
        await stream.has("reset")
        assert (await api.get("/api/queue/stats")).status_code == 200
    assert not [line for line in process.lines if line.get("level") == "error"]
    process.send(signal.SIGTERM)
    assert await process.exit_code() == 0


async def test_a_port_that_can_not_be_had_is_one_clear_line(pgwake: Pgwake) -> None:
    answer = await pgwake("serve", "--port", "0")
    assert answer.code == 78
    assert "set --port" in answer.errors
    assert "Traceback" not in answer.errors


async def test_host_and_port_may_be_flags(
    database: str, start_process: StartProcess
) -> None:
    port = free_port()
    flags = "--host", "127.0.0.1", "--port", str(port)
    process = await start_process(
        "-m", "pgwake", "serve", *flags, database_url=database
    )
    await process.logged("serving", host="127.0.0.1", port=port, has_api=False)
    await answers(port, "/readyz", 200)
    # Without a token nothing else is there.
    assert (await fetch(port, "/api/queue/stats")).status == 404
    assert (await fetch(port, "/api/events")).status == 404

"""A FastAPI application with a worker inside: tests/examples/fastapi_shop."""

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import httpx
import pytest

from pgwake.database.embedded import EmbeddedServer
from support import CHECKOUT, PATIENCE, Connection, free_port
from support.sql.helpers import job
from support.worker.helpers import ended, in_status
from support.worker.processes import WorkerProcess, clean_environment

SHOP = CHECKOUT / "tests" / "examples" / "fastapi_shop"
STARTED = "INFO:     Application startup complete.\n"

# A commit fails after all that the request's function has done.
REFUSE_LATE = """
create function refuse() returns trigger language plpgsql as
  $$ begin raise 'too late'; end $$;
create constraint trigger refuse after insert on orders initially deferred
  for each row when (new.email = 'late@example.org') execute function refuse();
"""


@pytest.fixture
def shop(database: str) -> str:
    """The URL of a database with the queue's schema and the shop's tables."""
    given = clean_environment({"PGWAKE_DATABASE_URL": database})
    subprocess.run([sys.executable, "database.py"], cwd=SHOP, env=given, check=True)
    return database


async def start(url: str, port: int, *words: str, **settings: str) -> WorkerProcess:
    """Start the application as its README does."""
    return await WorkerProcess.start(
        *("-m", "uvicorn", "app:app", "--port", str(port), *words),
        directory=SHOP,
        environment={
            "PGWAKE_DATABASE_URL": url,
            "PGWAKE_POLL_INTERVAL": "3600",
            "PGWAKE_LEASE": "2",
            **settings,
        },
    )


@asynccontextmanager
async def serving(
    url: str, *words: str, processes: int = 1
) -> AsyncIterator[tuple[WorkerProcess, httpx.AsyncClient]]:
    """The application and a client; all its processes are killed at the end."""
    port = free_port()
    application = await start(url, port, *words)
    try:
        await application.logged(STARTED, processes)
        async with httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{port}",
            timeout=PATIENCE,
            limits=httpx.Limits(max_keepalive_connections=0),  # an error 500 closes one
        ) as client:
            yield application, client
    finally:
        with suppress(ProcessLookupError):
            os.killpg(application.pid, signal.SIGKILL)
        await application.exit_code()


async def sell(client: httpx.AsyncClient, email: str, seconds: float = 0) -> int:
    """Order something; the id of the receipt's job."""
    given = f"email={email}&seconds={seconds}"
    response = await client.post("/orders", params=given)
    assert response.status_code == 200, response.text
    return int(response.json()["job"])


async def receipts(db: Connection) -> list[tuple[str, int]]:
    """How many receipts each order has had."""
    return [tuple(row) for row in await db.fetch("select email, receipts from orders")]


async def test_a_request_commits_its_order_with_its_job_or_neither(
    shop: str, connection: Connection
) -> None:
    await connection.execute(REFUSE_LATE)
    async with serving(shop) as (application, client):
        row = await ended(connection, await sell(client, "ada@example.org"))
        assert row["result"] == '{"sent_to": "ada@example.org"}'
        for email, status in (("nowhere", 422), ("late@example.org", 500)):
            response = await client.post("/orders", params={"email": email})
            assert response.status_code == status
        assert await receipts(connection) == [("ada@example.org", 1)]
        assert await connection.fetchval("select count(*) from pgwake.jobs") == 1

        last = await sell(client, "bo@example.org", seconds=1)
        await in_status(connection, last, "running")
        application.send(signal.SIGTERM)
        assert await application.exit_code() == -signal.SIGTERM

    row = await job(connection, last)
    assert (row["status"], row["attempt"], row["crash_count"]) == ("completed", 1, 0)


async def test_a_killed_process_loses_nothing(
    shop: str, connection: Connection
) -> None:
    async with serving(shop, "--workers", "2", processes=2) as (application, client):
        cut = await sell(client, "cy@example.org", seconds=3)
        row = await in_status(connection, cut, "running")
        os.kill(int(row["claimed_by"].split(":")[1]), signal.SIGKILL)
        row = await ended(connection, cut)
        assert (row["status"], row["crash_count"]) == ("completed", 1)
        await application.logged(STARTED, 3)  # uvicorn has replaced it

        cut = await sell(client, "di@example.org", seconds=3)
        await in_status(connection, cut, "running")

    async with serving(shop):  # all of them were killed
        assert (await ended(connection, cut))["status"] == "completed"
    assert await receipts(connection) == [("cy@example.org", 1), ("di@example.org", 1)]


async def test_an_application_that_can_not_start_says_why_and_ends(
    shop: str, admin_url: str
) -> None:
    without = admin_url.rpartition("/")[0] + "/postgres"
    nobody = shop.replace("127.0.0.1", "127.0.0.2")
    for url, why in ((without, "run `pgwake init`"), (nobody, "no answer from")):
        application = await start(url, free_port(), PGWAKE_QUERY_TIMEOUT="0.5")
        assert await application.exit_code() == 3
        assert [line for line in application.lines if why in line["event"]]


def test_its_own_tests_pass(server: EmbeddedServer) -> None:
    words = ("-q", "-W", "error", "-p", "no:cacheprovider")
    plugins = ("--disable-plugin-autoload", "-p", "anyio")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words, *plugins],
        cwd=SHOP,
        env=clean_environment({"PGWAKE_TEST_DATABASE_URL": server.url}),
        capture_output=True,
        text=True,
        check=False,
    )
    assert "3 passed" in done.stdout, done.stdout + done.stderr

"""The database moves to another server: all sessions follow, and nothing is lost."""

import asyncio
from datetime import timedelta
from pathlib import Path
from time import monotonic
from urllib.parse import urlsplit

import httpx

from pgwake import AsyncQueue, Queue, Registry, Worker
from pgwake.database.embedded import EmbeddedServer
from support import OWNER, Connect, Connection, database_url, free_port, wait_for
from support.sql.helpers import call, insert
from support.standby import follow, promote, standby_of
from support.worker.api import TOKEN, client
from support.worker.helpers import embedded, ended, in_status, sessions
from support.worker.metrics import gauge
from support.worker.processes import Pgwake

FAILED = "select count(*) from pgwake.jobs_failed"
LIVE = "select exists (select from pgwake.jobs_live where kind = 'note')"
TICKS = "select count(*) from pgwake.jobs where kind = 'tick'"


async def _ready(api: httpx.AsyncClient, status: int) -> list[str]:
    """Wait until /readyz has a status; what keeps it from being ready."""

    async def has_it() -> bool:
        return (await api.get("/readyz")).status_code == status

    await wait_for(has_it)
    said: list[str] = (await api.get("/readyz")).json()["problems"]
    return said


async def _works(
    connection: Connection,
    queue: AsyncQueue,
    worker: Worker,
    api: httpx.AsyncClient,
    word: str,
) -> None:
    """See each part at work: listener, claims, ends, schedules, API, a producer."""
    await _ready(api, 200)
    await wait_for(lambda: gauge(worker, "notify_lock_held"))
    job_id = await insert(connection, "note", payload={"text": f"{word}, woken"})
    await ended(connection, job_id)
    await ended(connection, await queue.enqueue("note", {"text": f"{word}, enqueued"}))
    body = {"kind": "note", "payload": {"text": f"{word}, pushed"}}
    assert (await api.post("/queues/default/push", json=body)).status_code == 201
    ticks = await connection.fetchval(TICKS)

    async def has_ticked() -> bool:
        return bool(await connection.fetchval(TICKS) > ticks)

    await wait_for(has_ticked)

    async def all_notes_are_written() -> bool:
        return not await connection.fetchval(LIVE)

    await wait_for(all_notes_are_written)


async def test_everything_moves_to_the_server_that_takes_writes(
    own_server: EmbeddedServer,
    own_database: str,
    connect: Connect,
    pgwake: Pgwake,
) -> None:
    registry = Registry()
    runs: list[str] = []
    go = asyncio.Event()

    @registry.job("wait", max_attempts=1)
    async def wait() -> str:
        runs.append("wait")
        await go.wait()
        return "done"

    @registry.job("note", max_attempts=1)
    async def note(text: str) -> None:
        runs.append(text)

    @registry.job("tick")
    async def tick() -> None: ...

    port = free_port()
    with standby_of(own_server) as other:
        one, two = (f"127.0.0.1:{server.port}" for server in (own_server, other))
        url = urlsplit(own_database)._replace(netloc=f"{OWNER}:owner@{one},{two}")
        both = url.geturl()
        turned = url._replace(netloc=f"{OWNER}:owner@{two},{one}").geturl()
        old = await connect(own_database)
        await call(old, "schedule", name="t", kind="tick", every=timedelta(seconds=1))
        in_flight = await insert(old, "wait")
        async with (
            Queue(both) as queue,
            embedded(both, registry, http_port=port, api_token=TOKEN) as worker,
            client(port) as api,
        ):
            await in_status(old, in_flight, "running")
            await queue.enqueue("note", {"text": "before"})
            # What only reads may go to the standby; what writes must not.
            answer = await pgwake("stats", "--json", PGWAKE_DATABASE_URL=turned)
            assert answer.code == 0, answer.errors
            done = await pgwake(
                "enqueue", "note", '{"text": "by hand"}', PGWAKE_DATABASE_URL=turned
            )
            assert done.code == 0, done.errors

            await asyncio.to_thread(own_server._halt, "fast")
            begun = monotonic()
            assert await _ready(api, 503) == ["the database is read-only"]
            await asyncio.to_thread(promote, other)
            go.set()
            new = await connect(database_url(other, Path(own_database).name))
            row = await ended(new, in_flight)
            assert (row["status"], row["result"]) == ("completed", "done")
            await _works(new, queue, worker, api, "after")
            seconds = monotonic() - begun
            print(f"all have moved {seconds:.1f} s after the stop")  # noqa: T201

            # The old one is back, first in the URL, and takes no writes.
            await asyncio.to_thread(follow, own_server, other)
            for row in await sessions(new):
                await new.execute("select pg_terminate_backend($1)", row["pid"])
            await _works(new, queue, worker, api, "again")
        assert sorted(runs) == sorted({*runs})
        assert await new.fetchval(FAILED) == 0
        await new.close()

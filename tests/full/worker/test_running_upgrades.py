"""The schema is upgraded under workers, producers and services that go on."""

import asyncio
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from full.sql.test_install import empty_database
from pgwake import Job, Queue, Registry
from pgwake.database.embedded import EmbeddedServer
from pgwake.database.install import install
from support import Connect, Connection, free_port, psql, wait_for
from support.sql import release
from support.sql.helpers import (
    Row,
    call,
    claim,
    insert,
    pairs,
    refused,
    set_clock,
    sweep,
)
from support.sql.next_schema import NEXT_VERSION, next_schema
from support.worker.api import TOKEN, answers, client
from support.worker.helpers import all_ended, embedded

__all__ = ["empty_database", "next_schema"]

PRODUCED = 200  # jobs before the upgrade, and as many after it


class Load:
    """Handlers that count what they run, and producers that keep them busy.

    Attributes:
        ran: How often each number was run.
        is_held: Set when a handler is in the midst of its transaction.
        go_on: Lets it go on.
    """

    def __init__(self, database: str) -> None:
        self.database = database
        self.ran: Counter[int] = Counter()
        self.is_held = asyncio.Event()
        self.go_on = asyncio.Event()

    def registry(self) -> Registry:
        registry = Registry()

        @registry.job("plain")
        async def plain(number: int) -> None:
            self.ran[number] += 1

        @registry.job("paid")
        async def paid(number: int, job: Job) -> None:
            self.ran[number] += 1
            async with job.transaction() as connection:
                await Queue(connection).enqueue("told", {"number": number})

        @registry.job("told")
        async def told(number: int) -> None: ...

        @registry.job("held")
        async def held(number: int, job: Job) -> None:
            self.ran[number] += 1
            async with job.transaction() as connection:
                await Queue(connection).enqueue("told", {"number": number})
                self.is_held.set()
                await self.go_on.wait()
                await Queue(connection).enqueue("told", {"number": number})

        return registry

    async def produce(self, enough: asyncio.Event) -> int:
        """Add jobs by a session with cached statements until told; how many."""
        connection = await asyncpg.connect(self.database)
        queue, number = Queue(connection), 0
        while not enough.is_set() or number % 4:
            number += 1
            payload = {"number": number}
            kind = ("plain", "paid")[number // 2 % 2]
            if number % 2:
                await queue.enqueue(kind, payload)
            else:
                await connection.execute(
                    "insert into pgwake.jobs (kind, payload) values ($1, $2)",
                    kind,
                    f'{{"number": {number}}}',
                )
            await asyncio.sleep(0)
        await connection.close()
        return number

    async def produce_in_a_transaction(self, first: asyncio.Event) -> None:
        """Add jobs before and after the upgrade was begun, in one transaction."""
        connection = await asyncpg.connect(self.database)
        queue = Queue(connection)
        await queue.enqueue("plain", {"number": -1})
        async with connection.transaction():
            await queue.enqueue("plain", {"number": -2})
            first.set()
            await self.go_on.wait()
            await queue.enqueue("plain", {"number": -3})
        await connection.close()


async def test_nothing_is_lost_by_an_upgrade_under_load(
    server: EmbeddedServer,
    database: str,
    connection: Connection,
    next_schema: Path,
) -> None:
    script = next_schema / "install.sql"
    load = Load(database)
    port = free_port()
    given: dict[str, Any] = {"http_port": port, "api_token": TOKEN, "slots": 20}
    async with embedded(database, load.registry(), **given), client(port) as api:
        await answers(api)
        await insert(connection, "held", payload={"number": 0})
        enough, first = asyncio.Event(), asyncio.Event()
        producing = asyncio.create_task(load.produce(enough))
        in_transaction = asyncio.create_task(load.produce_in_a_transaction(first))
        await asyncio.gather(load.is_held.wait(), first.wait())
        await wait_for(lambda: reached(load, PRODUCED))
        assert (await api.get("/api/queue/stats")).status_code == 200

        upgrade = asyncio.create_task(
            asyncio.to_thread(psql, server, database, "-f", str(script))
        )

        await wait_for(
            lambda: connection.fetchval(
                "select exists (select from pg_locks where not granted"
                " and mode = 'AccessExclusiveLock')"
            ),
            20,
        )
        load.go_on.set()
        await upgrade
        await in_transaction
        done = load.ran.total()
        await wait_for(lambda: reached(load, done + PRODUCED))
        assert (await api.get("/api/queue/stats")).status_code == 200
        enough.set()
        produced = await producing
        await all_ended(connection)

        # Its listener hears, its sessions work: the poll is an hour away.
        await insert(connection, "plain", payload={"number": -4})
        await all_ended(connection)

    assert set(load.ran) == {*range(-4, produced + 1)}
    assert set(load.ran.values()) == {1}
    rows = await connection.fetch(
        "select distinct status, attempt, crash_count, bounce_count, errors is null"
        " from pgwake.jobs"
    )
    assert [tuple(row) for row in rows] == [("completed", 1, 0, 0, True)]
    version = await connection.fetchval("select version from pgwake.schema_version")
    assert version == NEXT_VERSION

    # The same code, started against the newer schema.
    async with embedded(database, load.registry()):
        await insert(connection, "plain", payload={"number": -5})
        await insert(connection, "paid", payload={"number": -6})
        await all_ended(connection)
    assert load.ran[-5] == load.ran[-6] == 1


async def reached(load: Load, count: int) -> bool:
    return load.ran.total() >= count


COUNTS = (
    "queue, pending_count + scheduled_count, waiting_count, running_count,"
    " failed_count, completed_count, cancelled_count, enqueued_total,"
    " completed_total, failed_total"
)


@pytest.mark.usefixtures("next_schema")
async def test_jobs_of_schema_1_in_every_state_go_on_after_the_upgrade(
    connect: Connect, empty_database: str
) -> None:
    old = await connect(empty_database)
    await old.execute(release.script(1))
    held = await fill_every_state(old)
    counts = f"select {COUNTS} from pgwake.get_queue_stats() order by queue"
    before = await old.fetch(counts)
    tables = "select status, count(*) from pgwake.jobs group by status order by status"
    rows = await old.fetch(tables)

    assert await install(empty_database) == (1, NEXT_VERSION)
    assert await old.fetch(counts) == before
    assert await old.fetch(tables) == rows

    await call(old, "complete_jobs", **pairs(*held))
    assert await sweep(old, "2 seconds") == 10  # a worker would wait with it
    await set_clock(old, "0")
    await old.execute("select pgwake.retry_job(id) from pgwake.jobs_failed")
    await old.execute(
        "select pgwake.retry_job(id) from pgwake.jobs_finished"
        " where status = 'cancelled'"
    )
    # A live job's key is still its own.
    with refused("23505", by="jobs_unique_key_idx"):
        await insert(old, "unique", unique_key="key 1")
    registry = Registry()
    kinds = await old.fetch("select distinct kind from pgwake.jobs union select 'tick'")
    for (kind,) in kinds:
        registry.job(kind)(do_nothing)
    async with embedded(empty_database, registry, poll_interval=0.2):
        await wait_for(lambda: is_done(old))


async def do_nothing() -> None: ...


async def is_done(connection: Connection) -> bool:
    """Whether all is completed but for ticks, which go on, and one of these."""
    done: bool = await connection.fetchval(
        "select not exists ("
        "   select from pgwake.jobs where kind <> 'tick' and status <> 'completed')"
        " and exists (select from pgwake.jobs_finished where kind = 'tick')"
    )
    return done


async def fill_every_state(connection: Connection) -> list[Row]:
    """Ten jobs in each state that a job can be in; those with a live lease."""
    held: list[Row] = []
    for kind in ("held", "expired", "failed", "completed", "cancelled"):
        for _ in range(10):
            await insert(connection, kind)
        lease = timedelta(seconds=1 if kind == "expired" else 3600)
        jobs = await claim(connection, 10, worker=kind, lease=lease)
        assert len(jobs) == 10
        if kind == "failed":
            await call(connection, "fail_jobs", **pairs(*jobs), retryables=[False] * 10)
        elif kind == "completed":
            await call(connection, "complete_jobs", **pairs(*jobs))
        elif kind == "cancelled":
            for job in jobs:
                await call(connection, "cancel_job", job_id=job["id"])
            await call(connection, "fail_jobs", **pairs(*jobs))
        elif kind == "held":
            held = jobs
    for number in range(10):
        parent = await insert(connection, "pending")
        await call(connection, "enqueue", kind="child", depends_on=[parent])
        await call(connection, "enqueue", kind="delayed", delay=timedelta(seconds=2))
        await insert(connection, "keyed", concurrency_key="key")
        await insert(connection, "unique", unique_key=f"key {number}")
    await call(
        connection, "schedule", name="s", kind="tick", every=timedelta(seconds=1)
    )
    return held

"""A copy of a production database does not do production's work."""

import asyncio
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from structlog.testing import capture_logs

from full.worker.test_database_fit import supervised
from pgwake import Job, Registry
from pgwake.database.embedded import EmbeddedServer
from pgwake.jobs.registry import WEBHOOK_KIND
from support import Connect, Connection, wait_for
from support.sql.database_copies import restore
from support.sql.helpers import call, insert, rows, set_queue
from support.worker.helpers import ended
from support.worker.processes import Pgwake

LIVE = "select id, kind, status, attempt, crash_count from pgwake.jobs_live order by id"


async def test_a_restored_dump_mails_nobody_until_it_is_adopted(
    connection: Connection,
    connect: Connect,
    server: EmbeddedServer,
    admin: psycopg.Connection,
    database: str,
    monkeypatch: pytest.MonkeyPatch,
    pgwake: Pgwake,
) -> None:
    monkeypatch.setattr("pgwake.observe.database_fit.SHUT_SECONDS", 0.1)
    second = timedelta(seconds=1)
    await call(connection, "adopt", environment="production")
    await set_queue(connection, webhook="http://example.org")
    cancelled = await insert(connection, "mail")
    await call(connection, "cancel_job", job_id=cancelled)  # so its webhook is pending
    held = await insert(connection, "mail")
    await rows(connection, "claim_next_job", lease=second)
    child = await call(connection, "enqueue", kind="mail", depends_on=[held])
    pending = [await insert(connection, "mail") for _ in range(3)]
    delayed = await call(connection, "enqueue", kind="mail", delay=second)
    await call(connection, "schedule", name="tick", kind="tick", every=second)
    await connection.close()
    copy = restore(server, admin, database, way="pg_restore")

    registry, mailed, others = Registry(), set[int](), set[str]()

    @registry.job("mail")
    async def mail(job: Job) -> None:
        mailed.add(job.id)

    async def other(job: Job, **_: Any) -> None:
        others.add(job.kind)

    registry.job("tick")(other)
    registry.job(WEBHOOK_KIND)(other)

    copied = await connect(copy)
    before = await copied.fetch(LIVE)
    assert WEBHOOK_KIND in {row["kind"] for row in before}
    with capture_logs() as logs:
        async with supervised(copy, 0, registry):
            await asyncio.sleep(1.5)  # all is due by then, and the lease has run out
            assert await copied.fetch(LIVE) == before
            (said,) = [line for line in logs if line["log_level"] == "error"]
            assert "pgwake adopt" in said["problem"]

            answer = await pgwake("adopt", "--yes", "--database-url", copy)
            assert answer.code == 0, answer
            # No need to wait for the worker's: its session has to be up for a while.
            await call(copied, "maintain", step="sweep")

            live = {*pending, delayed, held, child}
            for job_id in live:
                await ended(copied, job_id)
            assert mailed == live

            await wait_for(lambda: others == {"tick", WEBHOOK_KIND})

"""Copies of a database: nothing runs in one before it is adopted."""

import re
from collections.abc import Callable
from datetime import timedelta

import psycopg
import pytest

from pgwake.database.embedded import EmbeddedServer
from pgwake.database.install import install
from support import Connect, Connection
from support.sql.database_copies import clone, restore
from support.sql.fixtures import fixture
from support.sql.helpers import (
    call,
    claim,
    insert,
    pair,
    refused,
    row_count,
    rows,
    running,
)

pytestmark = pytest.mark.own_database  # copied while nobody is connected

CLAIMS = ["claim_next_job()", "claim_jobs('default', 2)", "claim_batch('default', 2)"]
# What a database holds, but for what tells it from others.
CONTENTS = """
select 'jobs', to_jsonb(j) - 'ctid' from pgwake.jobs as j
union all select 'schedules', to_jsonb(s) from pgwake.schedules as s
union all select 'queues', to_jsonb(q) from pgwake.queues as q
union all select 'dependencies', to_jsonb(d) from pgwake.dependencies as d
union all select 'steps', to_jsonb(s) from pgwake.steps as s
union all select 'waits', to_jsonb(w) from pgwake.waits as w
union all select 'events', to_jsonb(e) from pgwake.events as e
union all select 'stats', to_jsonb(t) - 'oldest_pending_age'
  from pgwake.get_queue_stats() as t
"""


@fixture
async def original(db: Connection) -> Connection:
    """The test's database, guarded, with a job of each state and schedules."""
    await call(db, "adopt", environment="production")
    held = await running(db, kind="done")
    await call(db, "complete_job", **pair(held))
    held = await running(db, kind="dead")
    await call(db, "fail_job", **pair(held), retryable=False)
    parent = await running(db, kind="runs")
    await call(db, "enqueue", kind="waits", depends_on=[parent["id"]])
    held = await running(db, kind="steps")
    await call(db, "record_step", **pair(held), name="a", result=1)
    await call(db, "await_event", **pair(held), event="approved")
    await call(db, "emit_event", name="other", payload={"by": "Ann"})
    await insert(db, "pends", concurrency_key="k", queue="mail")
    await insert(db, "pends")
    await call(db, "enqueue", kind="delayed", delay=timedelta(hours=1))
    await call(db, "maintain", step="fold")
    for name in ("due", "paused"):
        every = timedelta(seconds=1)
        await call(db, "schedule", name=name, kind="tick", every=every)
    await db.execute(
        "update pgwake.schedules set next_at = now() - interval '1 minute'"
    )
    await call(db, "pause_schedule", name="paused")
    await call(db, "pause_queue", queue="mail")
    return db


async def contents(db: Connection) -> list[tuple[str, object]]:
    return sorted(map(tuple, await db.fetch(CONTENTS)), key=str)


Copy = Callable[[], str]


@pytest.fixture(params=["clone", "psql", "pg_restore"])
def copy(
    request: pytest.FixtureRequest,
    server: EmbeddedServer,
    admin: psycopg.Connection,
    database: str,
) -> Copy:
    """Copies the test's database, to which nobody may be connected any more."""
    if request.param == "clone":
        return lambda: clone(server, admin, database)
    return lambda: restore(server, admin, database, way=request.param)


async def test_a_copy_holds_the_same_and_runs_nothing_until_it_is_adopted(
    original: Connection, connect: Connect, copy: Copy
) -> None:
    before, identity = await contents(original), await _identity(original)
    await original.close()
    copied = await connect(copy())
    assert await contents(copied) == before

    here = await copied.fetchval("select pgwake.database_identity()")
    for claims in CLAIMS:
        with refused("PW006") as refusal:
            await copied.execute(f"select pgwake.{claims}")
        assert re.search(
            f"{here}.*is a copy.*{identity}.*production", str(refusal.value)
        )
        assert "pgwake adopt" in str(refusal.value.hint)
    await copied.execute("set pgwake.clock_offset = '2 hours'")
    assert await row_count(copied, "due_schedules") == 0
    assert await call(copied, "maintain") == {}
    assert await call(copied, "maintain", step="retention") == {}
    await copied.execute("reset pgwake.clock_offset")
    assert await contents(copied) == before

    assert await call(copied, "adopt") == ("production", here)
    assert await row_count(copied, "due_schedules") == 1
    assert [job["kind"] for job in await claim(copied, 9)] == ["pends"]
    assert await call(copied, "emit_event", name="approved")
    (held,) = await claim(copied, 9)
    assert held["options"]["steps"][0]["name"] == "a"
    for event in "approved", "other":
        (answer,) = await rows(copied, "await_event", **pair(held), event=event)
        assert answer["outcome"] == "here"
    assert "sweep" in await call(copied, "maintain")


async def test_a_copy_takes_jobs_and_operators_orders(
    original: Connection, connect: Connect, copy: Copy
) -> None:
    await original.close()
    copied = await connect(copy())
    job_id = await call(copied, "enqueue", kind="new")
    assert "copy" in await call(copied, "explain_job", job_id=job_id)
    assert await call(copied, "cancel_job", job_id=job_id) == "cancelled"
    await call(copied, "pause_queue", queue="default")
    await call(copied, "adopt")
    assert await claim(copied, 9) == []


async def test_what_an_installer_finds_it_does_not_adopt(
    original: Connection,
    connect: Connect,
    server: EmbeddedServer,
    admin: psycopg.Connection,
    database: str,
) -> None:
    await original.close()
    url = clone(server, admin, database)
    await install(url)
    with refused("PW006"):
        await claim(await connect(url))


async def test_a_setting_that_came_with_the_copy_does_not_adopt_it(
    original: Connection,
    connect: Connect,
    server: EmbeddedServer,
    admin: psycopg.Connection,
    database: str,
) -> None:
    setting = await original.fetchval("select current_setting('pgwake.adopted')")
    await original.close()
    url = clone(server, admin, database)
    name = url.rpartition("/")[2]
    admin.execute(f"alter database {name} set pgwake.adopted = '{setting}'")
    copied = await connect(url)
    with refused("PW006"):
        await claim(copied)


async def test_what_is_cloned_from_an_unguarded_database_runs(
    original: Connection,
    connect: Connect,
    server: EmbeddedServer,
    admin: psycopg.Connection,
    database: str,
) -> None:
    assert await call(original, "adopt", guard=False) == ("production", None)
    await original.close()
    copied = await connect(clone(server, admin, database))
    assert len(await claim(copied, 9)) == 1


@pytest.mark.parametrize(
    "arguments", [{"environment": ""}, {"environment": "x" * 129}, {"guard": None}]
)
async def test_what_can_not_be_noted_is_refused(
    db: Connection, arguments: dict[str, object]
) -> None:
    with refused("PW003"):
        await call(db, "adopt", **arguments)


async def _identity(db: Connection) -> str:
    identity: str = await db.fetchval("select identity from pgwake.installation")
    return identity

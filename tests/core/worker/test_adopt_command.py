"""pgwake adopt, and what pgwake init does of a copy and of an environment."""

import json
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from pgwake.database.embedded import EmbeddedServer
from support import Connect, Connection
from support.sql.database_copies import clone
from support.sql.helpers import call, claim, insert, running
from support.worker.processes import Answer, Pgwake


@pytest.fixture
async def copy(
    connection: Connection,
    server: EmbeddedServer,
    admin: psycopg.Connection,
    database: str,
) -> str:
    """The URL of a copy of a database with jobs in it."""
    await call(connection, "adopt", environment="production")
    await running(connection)
    await insert(connection)
    await insert(connection, queue="mail")
    await call(
        connection, "schedule", name="hourly", kind="t", every=timedelta(hours=1)
    )
    await connection.close()
    return clone(server, admin, database)


async def noted(connection: Connection) -> tuple[Any, ...]:
    row = await connection.fetchrow(
        "select identity = pgwake.database_identity(), environment"
        " from pgwake.installation"
    )
    return tuple(row or ())


def found(answer: Answer) -> dict[str, Any]:
    assert answer.code == 0, answer
    row: dict[str, Any] = json.loads(answer.output)
    return row


async def test_it_shows_what_is_there_and_adopts_only_when_told_to(
    copy: str, connect: Connect, pgwake: Pgwake
) -> None:
    copied = await connect(copy)
    answer = await pgwake("adopt", "--database-url", copy)
    assert answer.code == 2
    assert "is a copy of" in answer.output
    assert "environment production" in answer.output
    for name in ("default", "mail", "hourly"):
        assert name in answer.output
    assert "running: 1" in answer.errors
    assert "--yes" in answer.errors
    assert await noted(copied) == (False, "production")

    answer = await pgwake(
        *("adopt", "--yes", "--environment", "staging", "--database-url", copy)
    )
    assert (answer.code, answer.output.splitlines()[-1]) == (
        0,
        "noted for this database, environment staging",
    )
    assert await noted(copied) == (True, "staging")
    assert len(await claim(copied)) == 1


async def test_with_pause_nothing_runs_until_it_is_resumed(
    copy: str, connect: Connect, pgwake: Pgwake
) -> None:
    copied = await connect(copy)
    answer = found(
        await pgwake("adopt", "--yes", "--pause", "--json", "--database-url", copy)
    )
    assert [
        (row["queue"], row["pending_count"], row["running_count"])
        for row in answer["queues"]
    ] == [("default", 1, 1), ("mail", 1, 0)]
    assert answer["adopted"]["is_copy"] is False
    assert await noted(copied) == (True, "production")

    assert await claim(copied) + await claim(copied, queue="mail") == []
    assert await copied.fetchval("select is_paused from pgwake.schedules")
    await call(copied, "resume_queue", queue="mail")
    assert len(await claim(copied, queue="mail")) == 1


async def test_init_leaves_a_copy_one_and_says_so(
    copy: str, connect: Connect, pgwake: Pgwake
) -> None:
    copied = await connect(copy)
    answer = await pgwake(*("init", "--environment", "staging", "--database-url", copy))
    assert answer.code == 0
    assert "is a copy" in answer.errors
    assert "pgwake adopt" in answer.errors
    assert await noted(copied) == (False, "production")


async def test_init_notes_the_environment_where_there_is_none(
    connection: Connection, pgwake: Pgwake
) -> None:
    assert await noted(connection) == (None, None)
    assert (await pgwake("init", PGWAKE_ENVIRONMENT="production")).code == 0
    assert await noted(connection) == (None, "production")  # it is still unguarded
    answer = await pgwake("init", "--environment", "staging")
    assert answer.code == 78
    assert "noted for environment 'production'" in answer.errors
    assert "pgwake adopt --environment" in answer.errors
    assert await noted(connection) == (None, "production")

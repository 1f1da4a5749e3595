"""Two installations in two databases of one server have nothing to do with each other.

The schema has one name, so a database has one installation, whatever it is asked by.
"""

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from full.sql.test_install import CATALOG, contents, empty_database
from pgwake import Worker
from pgwake.database.embedded import EmbeddedServer
from pgwake.database.install import install
from support import OWNER, Connect, Connection, database_url
from support.sql.database_copies import clone
from support.sql.helpers import call, claim, insert, insert_many, pair, row_count
from support.worker.helpers import all_ended, asleep, embedded, ended, insert_some
from support.worker.metrics import Samples, wakeups
from support.worker.registries import quick

__all__ = ["empty_database"]


@pytest.fixture
def neighbour(
    server: EmbeddedServer, admin: psycopg.Connection, template: str
) -> Iterator[str]:
    """The URL of another database with pgwake in it, on the same server."""
    url = clone(server, admin, database_url(server, template))
    yield url
    admin.execute(f"drop database {Path(url).name} with (force)")


def shown(worker: Worker) -> tuple[float, float]:
    """How often a worker has claimed, and was woken."""
    claims = Samples(worker.metrics.render()).total("pgwake_claim_seconds")
    return claims, wakeups(worker)


async def test_jobs_of_one_database_neither_wake_nor_count_in_the_other(
    connection: Connection, connect: Connect, database: str, neighbour: str
) -> None:
    other = await connect(neighbour)
    async with (
        embedded(database, quick()) as busy,
        embedded(neighbour, quick()) as idle,
    ):
        await asleep(busy)
        await asleep(idle)  # each has the notify lock of its own queue of the same name
        before = shown(idle)
        await insert_many(connection, 100, queue="elsewhere")
        await insert_some(connection, "quick", 100)
        await connection.execute("delete from pgwake.jobs where queue = 'elsewhere'")
        await all_ended(connection)

        assert shown(idle) == before
        assert await row_count(other, "get_queue_stats") == 0
        (worker,) = await other.fetch("select name from pgwake.list_workers()")
        assert worker["name"] == idle.name
        await ended(other, await insert(other, "quick"))


async def test_locks_of_one_database_do_not_hold_up_the_other(
    connection: Connection, connect: Connect, neighbour: str
) -> None:
    other = await connect(neighbour)
    async with connection.transaction():
        for step in ("sweep", "fold", "retention", "analyze", "keys", "children"):
            done = await call(connection, "maintain", step=step)
            assert step in done
            assert step in await call(other, "maintain", step=step)
        await call(connection, "watch")
        await insert(connection, concurrency_key="k", unique_key="u")
        await insert(other, concurrency_key="k", unique_key="u")
        assert len(await claim(connection)) == len(await claim(other)) == 1
    assert await connection.fetchval("select pgwake.open_writers()") == []


async def test_what_is_uninstalled_in_one_database_is_whole_in_the_other(
    connection: Connection, connect: Connect, database: str, neighbour: str
) -> None:
    other = await connect(neighbour)
    before = await contents(connection, CATALOG)
    job_id = await insert(connection, "quick")
    await other.execute("drop schema pgwake cascade")

    assert await contents(connection, CATALOG) == before
    async with embedded(database, quick()):
        await ended(connection, job_id)
    await install(neighbour)
    assert await insert(await connect(neighbour))


@pytest.mark.parametrize("path", ["''", '"$user"', "decoy, public"])
async def test_no_search_path_changes_what_is_done(
    admin: psycopg.Connection, connect: Connect, empty_database: str, path: str
) -> None:
    name = Path(empty_database).name
    admin.execute(f"alter database {name} set search_path = {path}")
    decoy = await connect(empty_database)
    for schema in (OWNER, "decoy"):  # what a name without a schema would find
        await decoy.execute(
            f"create schema {schema}; create table {schema}.jobs (id int);"
            f" create table {schema}.queues (id int);"
            f" create table {schema}.installation (id int);"
            f" create function {schema}.now() returns int language sql as 'select 1'"
        )
    await install(empty_database)
    await install(empty_database)
    connection = await connect(empty_database)
    parent = await insert(connection, "quick", concurrency_key="k")
    await call(connection, "enqueue", kind="quick", depends_on=[parent])
    (held,) = await claim(connection)
    await call(connection, "complete_job", **pair(held))
    await call(connection, "maintain")
    async with embedded(empty_database, quick()):
        await all_ended(connection)

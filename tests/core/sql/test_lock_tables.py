"""A migration's locks: short tries, so that the queue's users hardly wait."""

import asyncio
from pathlib import Path

import pytest

from pgwake.database.embedded import EmbeddedServer
from pgwake.database.install import install
from pgwake.database.statements.install import installed_schema
from support import Connect, Connection, psql, wait_for
from support.sql.helpers import call, claim, insert, pairs, refused, waits
from support.sql.next_schema import NEXT_VERSION, next_schema

__all__ = ["next_schema"]


async def version(db: Connection) -> int:
    schema = await installed_schema(db)
    assert schema is not None
    return schema.version


async def test_a_migration_that_waits_keeps_nobody_waiting(
    server: EmbeddedServer,
    database: str,
    connect: Connect,
    db: Connection,
    next_schema: Path,
) -> None:
    holder = await connect()
    user = await connect(server_settings={"lock_timeout": "1s"})
    await insert(holder)
    async with holder.transaction():
        assert await claim(holder)
        upgrade = asyncio.create_task(
            asyncio.to_thread(
                psql, server, database, "-f", str(next_schema / "install.sql")
            )
        )

        async def in_a_try() -> bool:
            assert not upgrade.done()
            return bool(
                await db.fetchval(
                    "select exists (select from pg_locks where not granted"
                    " and mode = 'AccessExclusiveLock' and locktype = 'relation')"
                )
            )

        for _ in range(2):  # in the middle of a try, as who has come too late for it
            await wait_for(in_a_try)
            for _ in range(5):
                await insert(user)
            for held in await claim(user, 5):
                await call(user, "complete_jobs", **pairs(held))
        assert await version(db) == NEXT_VERSION - 1
    await upgrade
    assert await version(db) == NEXT_VERSION
    assert await db.fetchval("select count(*) from pgwake.jobs_finished") == 10


@pytest.mark.usefixtures("next_schema")
async def test_who_is_in_the_way_is_named_and_nothing_is_changed(
    database: str, connect: Connect, db: Connection
) -> None:
    holder = await connect(server_settings={"application_name": 'nightly "report"'})
    prepared = await connect()
    await prepared.execute("begin; select from pgwake.jobs; prepare transaction 'gid1'")
    async with holder.transaction():
        await holder.execute("select from pgwake.jobs_live")
        with refused("55P03") as caught:
            await install(database, timeout=3)
    assert caught.value.message == (
        "pgwake.jobs and pgwake.queues could not be locked within 00:00:01"
    )
    hint = str(caught.value.hint)
    pid = holder.get_server_pid()
    assert f'session {pid} "nightly "report"" since 20' in hint
    assert 'prepared transaction "gid1" since 20' in hint
    assert await version(db) == NEXT_VERSION - 1
    await prepared.execute("rollback prepared 'gid1'")

    assert await install(database) == (NEXT_VERSION - 1, NEXT_VERSION)


@pytest.mark.usefixtures("next_schema")
async def test_what_was_in_the_way_for_a_while_is_waited_out(
    database: str, connect: Connect, db: Connection
) -> None:
    holder, locker = await connect(), await connect()
    async with locker.transaction():  # another installer's turn
        await locker.execute("select pg_advisory_xact_lock(1885828971, 0)")
        async with holder.transaction():
            await holder.execute("select from pgwake.queues")
            upgrade = asyncio.create_task(install(database))

            async def waits_for_its_turn() -> bool:
                assert not upgrade.done()
                return bool(
                    await db.fetchval(
                        "select exists (select from pg_locks where not granted"
                        " and locktype = 'advisory')"
                    )
                )

            await wait_for(waits_for_its_turn)
    assert await upgrade == (NEXT_VERSION - 1, NEXT_VERSION)


async def test_another_installation_that_lasts_is_named(
    database: str, connect: Connect
) -> None:
    locker = await connect()
    async with locker.transaction():
        await locker.execute("select pg_advisory_xact_lock(1885828971, 0)")
        with refused("55P03") as caught:
            await install(database, timeout=1)
    assert "another installation of pgwake goes on" in str(caught.value.message)


async def test_a_lock_is_a_try_of_all_tables_or_of_none(
    db: Connection, other: Connection
) -> None:
    async with other.transaction():
        await other.execute("lock table pgwake.queues in access share mode")
        await db.execute("set pgwake.lock_patience = '1ms'")
        async with db.transaction():
            with refused("55P03"):
                async with db.transaction():
                    await db.execute(
                        "select pgwake.lock_tables('pgwake.jobs', 'pgwake.queues')"
                    )
            held = await db.fetchval(
                "select count(*) from pg_locks where pid = pg_backend_pid()"
                " and mode = 'AccessExclusiveLock' and locktype = 'relation'"
            )
            assert held == 0
    async with db.transaction():
        lock = "select pgwake.lock_tables('pgwake.jobs', 'pgwake.queues')"
        await db.execute(lock)
        task = asyncio.create_task(insert(other))
        await waits(other, task, db)
        assert await db.fetchval("show lock_timeout") == "0"
    await task


async def test_vacuum_is_waited_for_without_keeping_anybody_out(
    connect: Connect, db: Connection
) -> None:
    # Autovacuum would end itself after deadlock_timeout, longer than a try.
    vacuum, migration = await connect(), await connect()
    async with vacuum.transaction():
        await vacuum.execute(
            "lock table pgwake.jobs_live in share update exclusive mode"
        )
        task = asyncio.create_task(
            migration.execute("select pgwake.lock_tables('pgwake.jobs_live')")
        )
        await waits(migration, task, db)
        await insert(db)
    await task

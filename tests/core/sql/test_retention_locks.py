"""Retention beside readers, beside work, and beside rows that arrive."""

import asyncio

from core.sql.test_apply_retention import ended, file_of, left, retain
from support import Connect, Connection, wait_for
from support.sql.helpers import call, claim, insert_many, leaf, pairs, waits


async def test_a_leaf_that_a_reader_holds_is_left_for_later(
    connect: Connect, connection: Connection
) -> None:
    held = await leaf(connection, await ended(connection, 9))
    free = await leaf(connection, await ended(connection, 8))
    files = [await file_of(connection, table) for table in (held, free)]
    reader = await connect()
    async with reader.transaction():
        await reader.execute(f"select from pgwake.{held}")
        async with connection.transaction():
            assert await retain(connection) == 2
            assert await connection.fetchval("show lock_timeout") == "0"

    # Of the one that the reader holds only the rows were deleted.
    assert await left(connection) == []
    assert await file_of(connection, held) == files[0]
    assert await file_of(connection, free) != files[1]


async def test_a_row_that_arrives_while_a_truncate_waits_is_not_lost(
    connection: Connection, other: Connection
) -> None:
    old = await ended(connection, 8)
    slot = await connection.fetchval("select finished_slot from pgwake.jobs")
    transaction = other.transaction()
    await transaction.start()
    fresh = await ended(other, 1, finished_slot=slot)
    task = asyncio.create_task(retain(connection))

    async def waits_or_has_given_up() -> bool:
        blocked = "select cardinality(pg_blocking_pids($1)) > 0"
        pid = connection.get_server_pid()
        return task.done() or bool(await other.fetchval(blocked, pid))

    await wait_for(waits_or_has_given_up)
    await transaction.commit()

    assert await task == 1
    assert old not in await left(connection)
    assert await left(connection) == [fresh]


async def test_a_row_that_someone_has_locked_is_left_for_later(
    connection: Connection, other: Connection
) -> None:
    old = await ended(connection, 91, status="failed", finished_slot=None)
    async with other.transaction():
        await other.execute(f"select from pgwake.jobs where id = {old} for update")
        assert await retain(connection) == 0
    assert await retain(connection) == 1


async def test_work_goes_on_while_a_truncate_waits_behind_a_reader(
    connect: Connect, connection: Connection
) -> None:
    old = await ended(connection, 8)
    table = await leaf(connection, old)
    reader, upkeep = await connect(), await connect()
    async with reader.transaction():
        await reader.execute(f"select from pgwake.{table}")
        lock = f"lock table pgwake.{table} in access exclusive mode"

        async def truncate() -> None:
            async with upkeep.transaction():
                await upkeep.execute(lock)
                await upkeep.execute(f"truncate pgwake.{table}")

        task = asyncio.create_task(truncate())
        await waits(upkeep, task, reader)

        await insert_many(connection, 3)
        held = await claim(connection, 3)
        assert (
            await call(connection, "complete_jobs", **pairs(*held)) == ["completed"] * 3
        )
        assert not task.done()
    await task
    assert len(await left(connection)) == 3

"""Retention beside readers, beside work, and beside rows that arrive."""

import asyncio

from core.sql.test_apply_retention import ended, file_of, left, retain
from support import Connect, Connection, wait_for
from support.sql.helpers import call, claim, insert_many, leaf, pairs, waits


async def test_a_leaf_that_a_reader_holds_is_left_for_later(
    connect: Connect, db: Connection
) -> None:
    held = await leaf(db, await ended(db, 9))
    free = await leaf(db, await ended(db, 8))
    files = [await file_of(db, table) for table in (held, free)]
    reader = await connect()
    async with reader.transaction():
        await reader.execute(f"select from pgwake.{held}")
        async with db.transaction():
            assert await retain(db) == 2
            assert await db.fetchval("show lock_timeout") == "0"

    # Of the one that the reader holds only the rows were deleted.
    assert await left(db) == []
    assert await file_of(db, held) == files[0]
    assert await file_of(db, free) != files[1]


async def test_a_row_that_arrives_while_a_truncate_waits_is_not_lost(
    db: Connection, other: Connection
) -> None:
    old = await ended(db, 8)
    slot = await db.fetchval("select finished_slot from pgwake.jobs")
    transaction = other.transaction()
    await transaction.start()
    fresh = await ended(other, 1, finished_slot=slot)
    task = asyncio.create_task(retain(db))

    async def waits_or_has_given_up() -> bool:
        blocked = "select cardinality(pg_blocking_pids($1)) > 0"
        pid = db.get_server_pid()
        return task.done() or bool(await other.fetchval(blocked, pid))

    await wait_for(waits_or_has_given_up)
    await transaction.commit()

    assert await task == 1
    assert old not in await left(db)
    assert await left(db) == [fresh]


async def test_a_row_that_someone_has_locked_is_left_for_later(
    db: Connection, other: Connection
) -> None:
    old = await ended(db, 91, status="failed", finished_slot=None)
    async with other.transaction():
        await other.execute(f"select from pgwake.jobs where id = {old} for update")
        assert await retain(db) == 0
    assert await retain(db) == 1


async def test_work_goes_on_while_a_truncate_waits_behind_a_reader(
    connect: Connect, db: Connection
) -> None:
    old = await ended(db, 8)
    table = await leaf(db, old)
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

        await insert_many(db, 3)
        held = await claim(db, 3)
        assert await call(db, "complete_jobs", **pairs(*held)) == ["completed"] * 3
        assert not task.done()
    await task
    assert len(await left(db)) == 3

from datetime import timedelta
from typing import Any

import pytest

from support import Connection
from support.sql.helpers import (
    call,
    insert,
    job_in,
    leaf,
    refused,
    set_clock,
    set_queue,
)


async def ended(db: Connection, days_ago: float, **columns: Any) -> int:
    """A completed job that ended that long ago, in the leaf of that day."""
    finished_at = await db.fetchval(
        "select now() - $1::interval", timedelta(days=days_ago)
    )
    slot = await call(db, "finished_slot", at=finished_at)
    columns = {"finished_at": finished_at, "finished_slot": slot, **columns}
    return await insert(db, **{"status": "completed", **columns})


async def retain(db: Connection, **arguments: Any) -> int:
    count: int = await call(db, "apply_retention", **arguments)
    return count


async def left(db: Connection) -> list[int]:
    rows = await db.fetch("select id from pgwake.jobs order by id")
    return [job_id for (job_id,) in rows]


async def file_of(db: Connection, table: str) -> int:
    """The file that a table is stored in: a truncate gives it a new one."""
    node: int = await db.fetchval(
        "select pg_relation_filenode($1::regclass)", f"pgwake.{table}"
    )
    return node


async def test_a_leaf_past_its_retention_is_truncated(db: Connection) -> None:
    old = [await ended(db, 8), await ended(db, 8)]
    table = await leaf(db, old[0])
    file = await file_of(db, table)
    kept = await ended(db, 6)

    assert await retain(db) == 1
    assert await left(db) == [kept]
    assert await file_of(db, table) != file


@pytest.mark.parametrize("status", ["completed", "cancelled"])
@pytest.mark.parametrize(("days", "is_kept"), [(6.99, True), (7.01, False)])
async def test_finished_jobs_are_kept_seven_days(
    db: Connection, status: str, days: float, is_kept: bool
) -> None:
    await ended(db, days, status=status)
    await retain(db)

    assert bool(await left(db)) == is_kept


@pytest.mark.parametrize(("days", "is_kept"), [(89.99, True), (90.01, False)])
async def test_dead_letters_are_kept_ninety_days(
    db: Connection, days: float, is_kept: bool
) -> None:
    await ended(db, days, status="failed", finished_slot=None)
    await retain(db)

    assert bool(await left(db)) == is_kept


@pytest.mark.parametrize("state", ["waiting", "pending", "running"])
async def test_live_jobs_are_never_removed(db: Connection, state: str) -> None:
    job_id = await job_in(db, state)
    await set_clock(db, "20 years")

    assert await retain(db) == 0
    assert await left(db) == [job_id]


async def test_each_queue_has_its_own_retention(db: Connection) -> None:
    day = timedelta(days=1)
    await set_queue(db, "short", retention_completed=2 * day, retention_failed=day)
    await set_queue(db, "long", retention_completed=20 * day)
    await set_queue(db, "none", retention_completed=0 * day)
    kept = []
    for queue, days in [("short", 2), ("long", 20), ("none", 0), ("default", 7)]:
        if days:
            kept.append(await ended(db, days - 0.01, queue=queue))
        await ended(db, days + 0.01, queue=queue)
    dead = {"status": "failed", "finished_slot": None}
    kept.append(await ended(db, 0.9, queue="short", **dead))
    kept.append(await ended(db, 50, queue="long", **dead))
    await ended(db, 1.1, queue="short", **dead)

    assert await retain(db) == 5
    assert await left(db) == sorted(kept)


async def test_a_leaf_with_one_row_to_keep_is_not_truncated(db: Connection) -> None:
    old = await ended(db, 8)
    slot = await db.fetchval("select finished_slot from pgwake.jobs")
    table, kept = (await leaf(db, old), await ended(db, 1, finished_slot=slot))
    file = await file_of(db, table)

    assert await retain(db) == 1  # the old row alone
    assert await left(db) == [kept]
    assert await file_of(db, table) == file


@pytest.mark.parametrize("ahead", [0, 1])
async def test_the_leaf_in_use_and_the_next_are_emptied_row_by_row(
    db: Connection, ahead: int
) -> None:
    old = await ended(db, 32 - ahead)
    table = await leaf(db, old)
    file = await file_of(db, table)

    assert await retain(db) == 1
    assert await left(db) == []
    assert await file_of(db, table) == file


async def test_a_leaf_is_tried_once_an_hour(db: Connection) -> None:
    await retain(db)
    old = await ended(db, 8)
    table = await leaf(db, old)
    file = await file_of(db, table)

    await set_clock(db, "59 minutes")
    assert await retain(db) == 1
    assert await file_of(db, table) == file
    await ended(db, 8)
    await set_clock(db, "61 minutes")
    assert await retain(db) == 1
    assert await file_of(db, table) != file


@pytest.mark.parametrize(("max_rows", "first"), [(1, 1), (3, 3), (9, 5)])
async def test_single_rows_go_at_most_so_many_at_a_time(
    db: Connection, max_rows: int, first: int
) -> None:
    dead = {"status": "failed", "finished_slot": None}
    for _ in range(5):
        await ended(db, 91, **dead)
    for off in ["hashjoin", "mergejoin", "hashagg", "sort", "material", "memoize"]:
        await db.execute(f"set enable_{off} = off")

    assert await retain(db, max_rows=max_rows) == first


async def test_a_long_retention_widens_the_leaves(db: Connection) -> None:
    async def width(days: int) -> int:
        await set_queue(db, retention_completed=timedelta(days=days))
        await retain(db)
        found: int = await db.fetchval("select width from pgwake.installation")
        return found

    assert [await width(days) for days in (28, 29, 280, 28, 3600)] == [
        1,
        2,
        10,
        10,
        129,
    ]


@pytest.mark.parametrize("isolation", ["repeatable_read", "serializable"])
async def test_it_refuses_to_look_with_an_old_snapshot(
    db: Connection, isolation: Any
) -> None:
    with refused("PW003"):
        async with db.transaction(isolation=isolation):
            await call(db, "maintain", step="retention")


async def test_less_than_no_row_is_refused(db: Connection) -> None:
    with refused("PW003"):
        await call(db, "apply_retention", max_rows=-1)

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


async def ended(connection: Connection, days_ago: float, **columns: Any) -> int:
    """A completed job that ended that long ago, in the leaf of that day."""
    finished_at = await connection.fetchval(
        "select now() - $1::interval", timedelta(days=days_ago)
    )
    slot = await call(connection, "finished_slot", at=finished_at)
    columns = {"finished_at": finished_at, "finished_slot": slot, **columns}
    return await insert(connection, **{"status": "completed", **columns})


async def retain(connection: Connection, **arguments: Any) -> int:
    count: int = await call(connection, "apply_retention", **arguments)
    return count


async def left(connection: Connection) -> list[int]:
    rows = await connection.fetch("select id from pgwake.jobs order by id")
    return [job_id for (job_id,) in rows]


async def file_of(connection: Connection, table: str) -> int:
    """The file that a table is stored in: a truncate gives it a new one."""
    node: int = await connection.fetchval(
        "select pg_relation_filenode($1::regclass)", f"pgwake.{table}"
    )
    return node


async def test_a_leaf_past_its_retention_is_truncated(connection: Connection) -> None:
    old = [await ended(connection, 8), await ended(connection, 8)]
    table = await leaf(connection, old[0])
    file = await file_of(connection, table)
    kept = await ended(connection, 6)

    assert await retain(connection) == 1
    assert await left(connection) == [kept]
    assert await file_of(connection, table) != file


@pytest.mark.parametrize("status", ["completed", "cancelled"])
@pytest.mark.parametrize(("days", "is_kept"), [(6.99, True), (7.01, False)])
async def test_finished_jobs_are_kept_seven_days(
    connection: Connection, status: str, days: float, is_kept: bool
) -> None:
    await ended(connection, days, status=status)
    await retain(connection)

    assert bool(await left(connection)) == is_kept


@pytest.mark.parametrize(("days", "is_kept"), [(89.99, True), (90.01, False)])
async def test_dead_letters_are_kept_ninety_days(
    connection: Connection, days: float, is_kept: bool
) -> None:
    await ended(connection, days, status="failed", finished_slot=None)
    await retain(connection)

    assert bool(await left(connection)) == is_kept


@pytest.mark.parametrize("state", ["waiting", "pending", "running"])
async def test_live_jobs_are_never_removed(connection: Connection, state: str) -> None:
    job_id = await job_in(connection, state)
    await set_clock(connection, "20 years")

    assert await retain(connection) == 0
    assert await left(connection) == [job_id]


async def test_each_queue_has_its_own_retention(connection: Connection) -> None:
    day = timedelta(days=1)
    await set_queue(
        connection, "short", retention_completed=2 * day, retention_failed=day
    )
    await set_queue(connection, "long", retention_completed=20 * day)
    await set_queue(connection, "none", retention_completed=0 * day)
    kept = []
    for queue, days in [("short", 2), ("long", 20), ("none", 0), ("default", 7)]:
        if days:
            kept.append(await ended(connection, days - 0.01, queue=queue))
        await ended(connection, days + 0.01, queue=queue)
    dead = {"status": "failed", "finished_slot": None}
    kept.append(await ended(connection, 0.9, queue="short", **dead))
    kept.append(await ended(connection, 50, queue="long", **dead))
    await ended(connection, 1.1, queue="short", **dead)

    assert await retain(connection) == 5
    assert await left(connection) == sorted(kept)


async def test_a_leaf_with_one_row_to_keep_is_not_truncated(
    connection: Connection,
) -> None:
    old = await ended(connection, 8)
    slot = await connection.fetchval("select finished_slot from pgwake.jobs")
    table, kept = (
        await leaf(connection, old),
        await ended(connection, 1, finished_slot=slot),
    )
    file = await file_of(connection, table)

    assert await retain(connection) == 1  # the old row alone
    assert await left(connection) == [kept]
    assert await file_of(connection, table) == file


@pytest.mark.parametrize("ahead", [0, 1])
async def test_the_leaf_in_use_and_the_next_are_emptied_row_by_row(
    connection: Connection, ahead: int
) -> None:
    old = await ended(connection, 32 - ahead)
    table = await leaf(connection, old)
    file = await file_of(connection, table)

    assert await retain(connection) == 1
    assert await left(connection) == []
    assert await file_of(connection, table) == file


async def test_a_leaf_is_tried_once_an_hour(connection: Connection) -> None:
    await retain(connection)
    old = await ended(connection, 8)
    table = await leaf(connection, old)
    file = await file_of(connection, table)

    await set_clock(connection, "59 minutes")
    assert await retain(connection) == 1
    assert await file_of(connection, table) == file
    await ended(connection, 8)
    await set_clock(connection, "61 minutes")
    assert await retain(connection) == 1
    assert await file_of(connection, table) != file


@pytest.mark.parametrize(("max_rows", "first"), [(1, 1), (3, 3), (9, 5)])
async def test_single_rows_go_at_most_so_many_at_a_time(
    connection: Connection, max_rows: int, first: int
) -> None:
    dead = {"status": "failed", "finished_slot": None}
    for _ in range(5):
        await ended(connection, 91, **dead)
    for off in ["hashjoin", "mergejoin", "hashagg", "sort", "material", "memoize"]:
        await connection.execute(f"set enable_{off} = off")

    assert await retain(connection, max_rows=max_rows) == first


async def test_a_long_retention_widens_the_leaves(connection: Connection) -> None:
    async def width(days: int) -> int:
        await set_queue(connection, retention_completed=timedelta(days=days))
        await retain(connection)
        found: int = await connection.fetchval("select width from pgwake.installation")
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
    connection: Connection, isolation: Any
) -> None:
    with refused("PW003"):
        async with connection.transaction(isolation=isolation):
            await call(connection, "maintain", step="retention")


async def test_less_than_no_row_is_refused(connection: Connection) -> None:
    with refused("PW003"):
        await call(connection, "apply_retention", max_rows=-1)

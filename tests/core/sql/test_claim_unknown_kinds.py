"""Claims that leave out kinds which their worker has met and can not run."""

from datetime import timedelta
from typing import Any

import pytest

from support import Connection
from support.sql.helpers import Row, call, insert, refused, rows
from support.sql.plans import buffers


async def claim_known(db: Connection, count: int = 10, **arguments: Any) -> Row:
    """What a claim without kind x says, with its jobs' ids."""
    arguments = {"queue": "default", "count": count, "unknown_kinds": ["x"]} | arguments
    *jobs, said = await rows(db, "claim_rows", **arguments)
    return {**said, "ids": [job["id"] for job in jobs]}


async def test_unknown_kinds_are_left_out_and_the_newest_of_them_is_named(
    db: Connection,
) -> None:
    now = await call(db, "now")
    await insert(db, "x", priority=10)
    newest = await insert(db, "x")
    await insert(db, "x", run_at=now + timedelta(hours=1))
    known = [await insert(db, "y") for _ in range(3)]
    await insert(db, "y", run_at=now + timedelta(hours=2))

    full = await claim_known(db, 2)
    assert (full["ids"], full["left_out_id"]) == (known[:2], None)
    rest = await claim_known(db)
    assert (rest["ids"], rest["left_out_id"]) == (known[2:], newest)
    # When others may have to be woken.
    assert rest["next_run_at"] == now + timedelta(hours=1)
    assert rest["next_cursor"] is None


async def test_many_jobs_of_an_unknown_kind_are_stepped_over_once(
    db: Connection,
) -> None:
    await db.execute(
        "insert into pgwake.jobs (kind, priority, run_at)"
        " select 'x', 10, now() - interval '1 hour' from generate_series(1, 5000)"
    )
    first = await insert(db, "y")
    found = await claim_known(db)
    assert (found["ids"], found["left_out_id"]) == ([first], None)
    second = await insert(db, "y")

    cursor = found["next_cursor"]
    cursor["head_at"] = await db.fetchval(
        "select (clock_timestamp() + interval '59 seconds')::text"
    )
    arguments = {"queue": "default", "count": 1, "cursor": cursor}
    touched = await buffers(db, "claim_rows", **arguments, unknown_kinds=["x"])
    assert touched < 100
    assert (await claim_known(db, cursor=cursor))["ids"] == [second]


@pytest.mark.parametrize("kinds", [["x", None], ["x"] * 1001])
async def test_kinds_that_can_not_be_meant_are_refused(
    db: Connection, kinds: Any
) -> None:
    with refused("PW003"):
        await call(db, "claim_rows", queue="q", count=1, unknown_kinds=kinds)

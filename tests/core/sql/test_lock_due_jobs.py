"""The look of a claim at the priority bands, called alone."""

from typing import Any

from support import Connection
from support.sql.helpers import (
    Row,
    call,
    insert,
    job,
    rows,
    status,
)


async def locked(db: Connection, count: int = 10, **changes: Any) -> Row:
    """What lock_due_jobs takes, in a transaction of its own."""
    arguments = {
        "queue": "default",
        "count": count,
        "at": await call(db, "now"),
        "suspects": False,
        "has_cursor": False,
        "is_from_head": True,
        "slow": 500,
        "unknown_kinds": None,
        "resume_points": {},
    }
    (row,) = await rows(db, "lock_due_jobs", **{**arguments, **changes})
    return row


async def test_due_jobs_are_locked_band_by_band_and_not_changed(
    db: Connection,
) -> None:
    low = await insert(db)
    high = await insert(db, priority=5)
    crashed = [await insert(db, crash_count=1) for _ in range(2)]
    suspect = await insert(db, crash_count=2)

    taken = await locked(db)
    assert taken["ids"] == [high, low, crashed[0]]  # one that crashed is enough
    assert taken["bands"] == [-5, 0, 201]
    assert (await locked(db, 1))["ids"] == [high]
    assert (await locked(db, suspects=True))["ids"] == [suspect]
    assert await status(db, high) == "pending"


async def test_a_band_is_read_from_its_resume_point(db: Connection) -> None:
    first, second = [await insert(db) for _ in range(2)]
    run_at = (await job(db, first))["run_at"]
    points = {"0": [run_at.isoformat(), first]}

    behind = await locked(db, has_cursor=True, is_from_head=False, resume_points=points)
    assert (behind["ids"], behind["from_ids"]) == ([second], [first])
    assert (await locked(db, resume_points=points))["ids"] == [first, second]

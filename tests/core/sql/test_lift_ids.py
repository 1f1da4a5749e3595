"""The sequence of ids, and ids that come again since it lagged behind the rows."""

from typing import Any

import pytest

from support import Connection
from support.sql.helpers import (
    call,
    child,
    claim,
    insert,
    insert_many,
    job,
    leaf,
    pairs,
    rows,
    running,
)


async def lag(db: Connection) -> None:
    """Set the sequence back, as a restore of the rows alone leaves it."""
    await db.execute("select setval('pgwake.jobs_id_seq', 1, false)")


async def ended(db: Connection, count: int, *, dead: bool = False) -> list[int]:
    """Jobs that have ended, completed or failed; their ids."""
    await insert_many(db, count)
    held = await claim(db, count)
    if dead:
        await call(db, "fail_jobs", **pairs(*held), retryables=[False] * count)
    else:
        await call(db, "complete_jobs", **pairs(*held))
    return [row["id"] for row in held]


@pytest.mark.parametrize("by", ["adopt", "maintain"])
async def test_the_sequence_is_lifted_above_the_highest_id(
    db: Connection, by: str
) -> None:
    before = await ended(db, 3) + await ended(db, 3, dead=True) + [await insert(db)]
    await lag(db)
    (found,) = await rows(db, "diagnose_installation")
    assert (found["check_name"], found["value"]) == ("ids_come_again", 6)

    await call(db, by, **({"step": "ids"} if by == "maintain" else {}))
    assert await rows(db, "diagnose_installation") == []
    assert await insert(db) > max(before)
    assert await call(db, "maintain", step="ids") == {"ids": 0}


async def test_a_long_way_is_made_at_once(db: Connection) -> None:
    await insert(db, id=5_000_000_000)
    assert await call(db, "maintain", step="ids") == {"ids": 4_999_999_999}
    assert await insert(db) == 5_000_000_001


async def test_ids_that_came_again_are_the_live_jobs(db: Connection) -> None:
    done, dead = (await ended(db, 2)), (await ended(db, 2, dead=True))
    await lag(db)
    parent = await running(db, kind="new")
    waits = await child(db, parent["id"], kind="new")
    assert {parent["id"], waits} == set(done)

    await call(db, "maintain", step="ids")
    assert (await job(db, parent["id"]))["kind"] == "new"
    assert await leaf(db, waits) == "jobs_live"
    kept = await db.fetch("select id, kind, status from pgwake.jobs")
    assert len({row["id"] for row in kept}) == 6
    assert {row["id"] for row in kept if row["status"] == "failed"} == set(dead)
    assert max(row["id"] for row in kept) > max(dead)


@pytest.mark.parametrize("end", ["complete", "fail", "cancel", "release"])
async def test_no_end_is_refused_by_an_id_that_came_again(
    db: Connection, end: str
) -> None:
    await ended(db, 3)
    await ended(db, 3, dead=True)
    await lag(db)
    await insert_many(db, 6)
    held = await claim(db, 6, worker="w1")
    arguments: dict[str, Any] = pairs(*held)
    match end:
        case "complete":
            told = await call(db, "complete_jobs", **arguments)
            assert told == ["completed"] * 6
            assert told == await call(db, "complete_jobs", **arguments)
        case "fail":
            told = await call(db, "fail_jobs", **arguments, retryables=[False] * 6)
            assert told == ["failed"] * 6
        case "cancel":
            for row in held:
                await call(db, "cancel_job", job_id=row["id"])
            assert await call(db, "fail_jobs", **arguments) == ["cancelled"] * 6
        case "release":
            await db.execute(
                "update pgwake.jobs_live set crash_count = 4, claimed_by = 'dead'"
            )
            (found,) = await rows(db, "release_worker_jobs", worker="dead")
            assert (found["job_count"], found["failed_count"]) == (6, 6)
    leaves = "select tableoid::regclass::text || id from pgwake.jobs"
    kept = [name for (name,) in await db.fetch(leaves)]
    assert len(set(kept)) == len(kept) == 12
    assert not any("live" in name for name in kept)

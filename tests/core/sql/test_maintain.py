from typing import Any

import pytest

from support import Connection
from support.sql.helpers import (
    call,
    claim,
    flush_statistics,
    insert,
    insert_many,
    refused,
    running,
    set_clock,
    status,
)
from support.sql.plans import buffers

pytestmark = pytest.mark.own_database  # nothing of other tests to analyze

STEPS = {"sweep": 1, "fold": 2, "retention": 3, "analyze": 4, "recount": 5}


async def maintain(db: Connection, step: str | None = None) -> dict[str, Any]:
    done: dict[str, Any] = await call(db, "maintain", step=step)
    return done


async def test_without_a_step_it_sweeps_and_folds(db: Connection) -> None:
    held = await running(db)
    await set_clock(db, "1 hour")

    done = await maintain(db)
    crashed = ["default", "noop", 1, 0, 0]
    assert done == {"sweep": 1, "crashed": [crashed], "fold": 2}
    assert await status(db, held["id"]) == "pending"


@pytest.mark.parametrize("step", STEPS)
async def test_one_step_does_only_that(db: Connection, step: str) -> None:
    assert await maintain(db, step) == {step: 0}


async def test_a_sweep_tells_what_crashed_by_queue_and_kind(db: Connection) -> None:
    for kind in ("a", "a", "b"):
        await insert(db, kind)
    await claim(db, 3)
    await set_clock(db, "1 hour")

    done = await maintain(db, "sweep")
    assert done["sweep"] == 3
    assert sorted(done["crashed"]) == [
        ["default", "a", 2, 0, 0],
        ["default", "b", 1, 0, 0],
    ]


async def test_a_fold_tells_how_many_rows_it_took_in(db: Connection) -> None:
    for _ in range(3):
        await insert(db)

    assert await maintain(db, "fold") == {"fold": 3}
    assert await maintain(db, "fold") == {"fold": 0}


async def test_an_analyze_refreshes_what_changed_much(db: Connection) -> None:
    await insert_many(db, 1500)
    await flush_statistics(db)

    assert await maintain(db, "analyze") == {"analyze": 1}
    analyzed = "select reltuples from pg_class where oid = 'pgwake.jobs_live'::regclass"
    assert await db.fetchval(analyzed) == 1500
    await flush_statistics(db)
    assert await maintain(db, "analyze") == {"analyze": 0}


async def test_an_analyze_does_not_wait_for_another(
    db: Connection, other: Connection
) -> None:
    await insert_many(db, 1500)
    await flush_statistics(db)
    async with other.transaction():
        await other.execute("lock table pgwake.jobs_live in exclusive mode")
        assert await maintain(db, "analyze") == {"analyze": 0}
    assert await maintain(db, "analyze") == {"analyze": 1}


@pytest.mark.parametrize("step", STEPS)
async def test_a_step_that_another_session_does_is_skipped(
    db: Connection, other: Connection, step: str
) -> None:
    async with db.transaction():
        assert step in await maintain(db, step)
        assert await maintain(other, step) == {}
        others = [another for another in STEPS if another != step]
        assert [await maintain(other, another) for another in others] == [
            {another: 0} for another in others
        ]
    assert step in await maintain(other, step)


@pytest.mark.parametrize("step", STEPS)
async def test_the_lock_of_a_step_is_the_one_that_is_documented(
    db: Connection, other: Connection, step: str
) -> None:
    await db.execute(f"select pg_advisory_lock(1885828971, {STEPS[step]})")

    assert await maintain(other, step) == {}


@pytest.mark.parametrize("step", ["", "vacuum", "Sweep"])
async def test_an_unknown_step_is_refused(db: Connection, step: str) -> None:
    with refused("PW003"):
        await maintain(db, step)


async def test_a_recount_of_tables_that_are_too_large_reads_none_of_their_rows(
    db: Connection,
) -> None:
    await insert_many(db, 3000)
    small = await buffers(db, "recount_jobs", max_bytes=0)
    await insert_many(db, 3000)
    assert await buffers(db, "recount_jobs", max_bytes=0) < small + 20
    assert await buffers(db, "recount_jobs") > small + 50

"""The counts of get_queue_stats are those of the rows, whatever happened to them."""

import asyncio
import json
import random
from datetime import timedelta
from typing import Any

import pytest

from support import Connect, Connection
from support.sql.comparison import COUNTS, RECOUNTED
from support.sql.helpers import (
    Row,
    call,
    claim,
    insert,
    insert_many,
    job_in,
    pair,
    pairs,
    rows,
    set_clock,
    set_queue,
)

SAME = f"select ({RECOUNTED}) is not distinct from ({COUNTS})"
STATES = ["waiting", "pending", "running", "completed", "failed", "cancelled"]
BUFFERS = "explain (analyze, buffers, timing off, format json) select * from "


async def are_right(db: Connection) -> bool:
    """Are they as counted, in one snapshot; queues that are empty left out?"""
    return bool(await db.fetchval(SAME))


async def one_of_each(db: Connection, queue: str = "default") -> None:
    for state in sorted(STATES, key=["pending", "waiting"].__contains__):
        await job_in(db, state, queue=queue)


async def step(db: Connection, chance: random.Random) -> None:
    """Do something to some jobs."""
    held = await claim(db, chance.randint(1, 4), queue="default")
    match chance.randrange(8):
        case 0 | 1:
            await insert_many(db, chance.randint(1, 5))
        case 2 | 3 if held:
            await call(db, "complete_jobs", **pairs(*held))
        case 4 if held:
            await call(db, "fail_jobs", **pairs(*held))
        case 5 if held:
            ends = [chance.random() < 0.5 for _ in held]
            await call(db, "fail_jobs", **pairs(*held), retryables=ends)
        case 6 if held:
            await call(db, "release_jobs", **pairs(*held))
        case _:
            await call(db, "fold_counts")


async def test_they_are_right_after_each_of_many_steps(db: Connection) -> None:
    chance = random.Random(1)  # noqa: S311
    await insert(db)
    for _ in range(150):
        await step(db, chance)
        assert await are_right(db)


async def test_every_snapshot_among_folds_and_work_shows_them_right(
    connect: Connect, db: Connection
) -> None:
    await insert(db)
    done = asyncio.Event()

    async def work(seed: int) -> None:
        session, chance = await connect(), random.Random(seed)  # noqa: S311
        for _ in range(60):
            async with session.transaction():
                await step(session, chance)
        done.set()

    async def fold() -> None:
        folder = await connect()
        while not done.is_set():
            await call(folder, "fold_counts")

    async def watch() -> None:
        while not done.is_set():
            async with db.transaction(isolation="repeatable_read"):
                assert await are_right(db)

    await asyncio.gather(work(2), work(3), fold(), watch())
    assert await are_right(db)


async def test_a_fold_leaves_what_an_open_transaction_adds_to_the_next(
    db: Connection, other: Connection
) -> None:
    async with other.transaction():
        await insert_many(other, 3)
        await insert_many(db, 2)
        await call(db, "fold_counts")
    assert await are_right(db)
    await call(db, "fold_counts")
    assert await are_right(db)
    assert await db.fetchval("select count(*) from pgwake.counts") == 0


async def test_a_fold_in_a_transaction_of_its_users_counts_nothing_twice(
    db: Connection, other: Connection
) -> None:
    async with db.transaction():
        await insert_many(db, 3)
        await insert_many(other, 1)  # by a later transaction, which ends before
        await call(db, "fold_counts")
        await insert_many(db, 2)
        assert await are_right(db)
    assert await are_right(db)
    await call(db, "fold_counts")
    assert await are_right(db)


@pytest.mark.parametrize(
    "statement",
    [
        "delete from pgwake.jobs",
        "update pgwake.jobs set queue = 'other'",
        (
            "update pgwake.jobs set status = 'waiting', has_parents_left = true"
            " where status = 'pending'"
        ),
        (
            "update pgwake.jobs set status = 'completed', lease_expires_at = null,"
            " finished_at = now(), finished_slot = 3 where status = 'running'"
        ),
        "truncate pgwake.jobs",
        "truncate pgwake.jobs_live",
        "truncate pgwake.jobs_failed",
        "truncate pgwake.jobs_finished",
    ],
)
@pytest.mark.parametrize("folded", [False, True])
async def test_statements_by_hand_are_counted(
    db: Connection, statement: str, folded: bool
) -> None:
    await one_of_each(db)
    if folded:
        await call(db, "fold_counts")
    await db.execute(statement)
    (row, *_) = await rows(db, "get_queue_stats", queue="default")
    for state in STATES:
        count = await db.fetchval(
            "select count(*) from pgwake.jobs where status = $1 and queue = 'default'",
            state,
        )
        assert row[f"{state}_count"] == count


async def test_retention_takes_away_what_it_removes(db: Connection) -> None:
    for queue in ("a", "b"):
        await one_of_each(db, queue)
    nothing = timedelta(0)
    await set_queue(db, "a", retention_completed=nothing, retention_failed=nothing)
    counts: list[Row] = []
    for clock in ("1 second", "8 days", "100 days"):
        await set_clock(db, clock)
        await call(db, "maintain", step="retention")
        await call(db, "fold_counts")
        counts = await rows(db, "get_queue_stats")
        for row in counts:
            for state in ("completed", "failed", "cancelled"):
                count = await db.fetchval(
                    "select count(*) from pgwake.jobs where status = $1 and queue = $2",
                    state,
                    row["queue"],
                )
                assert row[f"{state}_count"] == count
    assert [row["completed_count"] for row in counts] == [0, 0]


@pytest.mark.parametrize(
    "drift",
    [
        "delete from pgwake.jobs_live",
        "delete from pgwake.jobs_failed",
        "delete from pgwake.jobs where status = 'completed'",
        "truncate pgwake.counts",
        "truncate pgwake.counts, pgwake.count_sums, pgwake.count_leaves",
    ],
)
async def test_a_recount_corrects_what_no_trigger_saw(
    db: Connection, drift: str
) -> None:
    await one_of_each(db)
    await call(db, "fold_counts")
    await one_of_each(db, "b")
    before = await rows(db, "get_queue_stats")
    await db.execute(drift)
    await call(db, "maintain", step="recount")

    for row in await rows(db, "get_queue_stats"):
        for state in STATES:
            count = await db.fetchval(
                "select count(*) from pgwake.jobs where status = $1 and queue = $2",
                state,
                row["queue"],
            )
            assert row[f"{state}_count"] == count
    assert len(before) == 2
    assert await call(db, "recount_jobs") == 0


async def test_a_recount_leaves_out_what_is_large(db: Connection) -> None:
    await insert(db)
    await db.execute("delete from pgwake.jobs_live")

    assert await call(db, "recount_jobs", max_bytes=0) == 0
    assert await call(db, "recount_jobs", max_bytes=None) == 1


@pytest.mark.parametrize(("due", "later"), [(15, 4), (4, 15), (15, 15), (0, 30)])
async def test_only_where_both_parts_are_large_their_division_is_estimated(
    db: Connection, due: int, later: int
) -> None:
    await db.execute("set pgwake.exact_rows = 10")
    await insert_many(db, due)
    await db.execute(
        "insert into pgwake.jobs (kind, priority, run_at)"
        " select 'a', n % 3, now() + interval '1 h' from generate_series(1, $1) as n",
        later,
    )
    (row,) = await rows(db, "get_queue_stats")
    counts = (row["pending_count"], row["scheduled_count"])

    assert sum(counts) == due + later
    assert row["is_estimate"] == (due > 10 and later > 10)
    assert row["is_estimate"] or counts == (due, later)
    assert min(counts) > 10 or not row["is_estimate"]


async def test_of_many_queues_with_many_jobs_less_is_counted_before_it_is_estimated(
    db: Connection,
) -> None:
    await db.execute(
        "insert into pgwake.jobs_live (kind, run_at)"
        " select 'a', now() + case when n % 2 = 0 then interval '1 h' else '0' end"
        " from generate_series(1, 4000) as n"
    )
    await db.execute(
        "insert into pgwake.counts (queue, at, live_rows)"
        " select 'q' || n, now(), 10000 from generate_series(1, 149) as n"
        " union all select 'default', now(), 4000"
    )
    assert not any(row["is_estimate"] for row in await rows(db, "get_queue_stats"))
    await call(db, "fold_counts")

    of_all = {row["queue"]: row for row in await rows(db, "get_queue_stats")}
    counts = [of_all["default"][f"{name}_count"] for name in ("pending", "scheduled")]
    assert (of_all["default"]["is_estimate"], sum(counts)) == (True, 4000)
    (row,) = await rows(db, "get_queue_stats", queue="default")
    assert (row["pending_count"], row["scheduled_count"]) == (2000, 2000)
    assert not row["is_estimate"]


async def buffers(db: Connection) -> int:
    await rows(db, "get_queue_stats")  # what the catalogs cost, once
    plan = await db.fetchval(BUFFERS + "pgwake.get_queue_stats()")
    plan = json.loads(plan)
    found: dict[str, Any] = plan[0]["Plan"]
    return int(found["Shared Hit Blocks"] + found["Shared Read Blocks"])


@pytest.mark.own_database
async def test_many_jobs_cost_as_much_as_a_hundred(db: Connection, many: int) -> None:
    await insert_many(db, 100)
    few = await buffers(db)
    await insert_many(db, many)

    assert await buffers(db) <= few + 10
    (row,) = await rows(db, "get_queue_stats")
    assert (row["pending_count"], row["is_estimate"]) == (many + 100, False)


@pytest.mark.own_database
async def test_jobs_that_are_not_due_are_counted_without_their_rows(
    db: Connection,
) -> None:
    await db.execute(
        "insert into pgwake.jobs (kind, run_at)"  # neighbours of the index far apart
        " select 'a', now() + interval '1 h' + n * 7919 % 5000 * interval '1 s'"
        " from generate_series(1, 5000) as n"
    )
    await db.execute("vacuum pgwake.jobs_live")

    assert await buffers(db) < 1000
    (row,) = await rows(db, "get_queue_stats")
    assert row["scheduled_count"] == 5000


@pytest.mark.own_database
async def test_what_folds_deleted_is_not_waded_through_under_an_old_snapshot(
    connect: Connect, db: Connection
) -> None:
    old = await connect()
    async with old.transaction(isolation="repeatable_read"):
        await old.fetch("select from pgwake.jobs")
        seen = []
        for _ in range(3):
            # Each in a transaction of its own.
            await db.execute(
                "do $$ begin for n in 1..500 loop"
                " perform pgwake.cancel_job(pgwake.enqueue('noop')); commit;"
                " end loop; end $$"
            )
            await call(db, "fold_counts")
            seen.append(await buffers(db))
    assert max(seen) <= seen[0] + 5


async def test_a_restored_dump_counts_what_was_in_it(db: Connection) -> None:
    await one_of_each(db)
    await call(db, "fold_counts")
    await insert_many(db, 3)
    # As if this server had not given out so many transaction ids yet.
    await db.execute(
        "update pgwake.count_folds set next_xid = '9000000000', open_xids = '{}'"
    )
    await insert_many(db, 2)

    assert await are_right(db)
    await call(db, "fold_counts")
    assert await are_right(db)


async def test_they_are_told_in_a_transaction_that_only_reads(db: Connection) -> None:
    await one_of_each(db)
    async with db.transaction(readonly=True, isolation="serializable"):
        assert await are_right(db)


async def test_a_job_that_replaces_another_in_another_queue_moves(
    db: Connection,
) -> None:
    for queue in ("a", "b"):
        await call(
            db, "enqueue", kind="k", queue=queue, unique_key="u", on_conflict="replace"
        )
    counts = await rows(db, "get_queue_stats")
    assert [row["pending_count"] for row in counts] == [0, 1]
    job_id = await job_in(db, "failed", queue="a")
    await call(db, "retry_job", job_id=job_id)
    (held,) = await claim(db, queue="a")
    await call(db, "complete_job", **pair(held))
    assert await are_right(db)

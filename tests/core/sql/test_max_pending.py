"""max_pending: how many jobs may wait in a queue when one is inserted."""

from datetime import timedelta

import pytest

from support import Connection
from support.sql.helpers import (
    call,
    child,
    claim,
    insert,
    insert_many,
    pair,
    refused,
    running,
    set_clock,
    set_queue,
)

LIVE = "select count(*) from pgwake.jobs_live"


@pytest.mark.parametrize("is_folded", [False, True])
async def test_an_insert_that_goes_beyond_it_is_refused_as_a_whole(
    db: Connection, is_folded: bool
) -> None:
    await set_queue(db, max_pending=3)
    await insert_many(db, 2)
    if is_folded:
        await call(db, "maintain", step="fold")

    with refused("PW007"):
        await insert_many(db, 2)
    await insert(db, concurrency_key="k")
    for refusal in (
        insert(db),
        insert(db, concurrency_key="l"),
        child(db, 1),
        call(db, "enqueue", kind="noop"),
        call(db, "enqueue_many", jobs=[{"kind": "noop", "unique_key": "u"}]),
        db.copy_records_to_table(
            "jobs", schema_name="pgwake", columns=["kind"], records=[("noop",)]
        ),
    ):
        with refused("PW007"):
            await refusal
    await insert_many(db, 5, queue="other")
    assert await db.fetchval(LIVE) == 8


async def test_running_and_ended_jobs_leave_room(db: Connection) -> None:
    await set_queue(db, max_pending=1)
    held = await running(db)
    other = await running(db)
    await insert(db)
    with refused("PW007"):
        await insert(db)
    # what comes back is not refused, and takes room
    await call(db, "fail_job", **pair(held), error="x")
    await call(db, "snooze_job", **pair(other), delay=timedelta(hours=1))
    await set_clock(db, "2 hours")
    done = await claim(db, 2)
    with refused("PW007"):
        await insert(db)
    await call(db, "complete_job", **pair(done[0]))
    await claim(db)
    await insert(db)


async def test_a_live_job_is_returned_by_a_full_queue(db: Connection) -> None:
    await set_queue(db, max_pending=1)
    live = await insert(db, unique_key="u")
    assert await call(db, "enqueue", kind="noop", unique_key="u") == live


async def test_its_cost_does_not_grow_with_the_backlog(db: Connection) -> None:
    await set_queue(db, max_pending=1_000_000)
    rows_read = (
        "select sum(seq_tup_read + idx_tup_fetch) from pg_stat_xact_user_tables"
        " where schemaname = 'pgwake'"
    )
    costs = []
    for backlog in (10, 20_000):
        await insert_many(db, backlog)
        await call(db, "maintain", step="fold")
        async with db.transaction():
            before = await db.fetchval(rows_read)
            await insert(db)
            costs.append(await db.fetchval(rows_read) - before)
    assert costs[1] < costs[0] + 50


async def test_without_upkeep_the_jobs_themselves_are_looked_at(db: Connection) -> None:
    await set_queue(db, max_pending=1100)
    await db.execute(
        "do $$ begin for n in 1..1100 loop"
        " insert into pgwake.jobs (kind) values ('a'); end loop; end $$"
    )
    assert await db.fetchval(LIVE) == 1100
    with refused("PW007"):
        await insert(db)

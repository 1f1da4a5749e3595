from datetime import timedelta
from typing import Any

import pytest

from support import Connection
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
    running,
    set_clock,
    set_queue,
)

COUNTS = ["pending", "scheduled", "waiting", "running", "completed", "failed"]
COUNTS += ["cancelled"]


async def stats(db: Connection, queue: str = "default") -> Row:
    (row,) = await rows(db, "get_queue_stats", queue=queue)
    return row


async def later(db: Connection, hours: float, **columns: Any) -> int:
    run_at = await db.fetchval("select now() + $1::interval", timedelta(hours=hours))
    return await insert(db, run_at=run_at, **columns)


async def test_without_queues_there_are_no_rows(db: Connection) -> None:
    assert await rows(db, "get_queue_stats") == []
    assert await rows(db, "get_queue_stats", queue="none") == []


async def test_each_state_is_counted_for_itself(db: Connection) -> None:
    states = ["waiting", "running", "completed", "failed", "cancelled", "pending"]
    for times, state in enumerate(states, 1):
        for _ in range(times):
            await job_in(db, state)
    for _ in range(7):
        await later(db, 1)

    row = await stats(db)
    expected = {state: times for times, state in enumerate(states, 1)}
    expected["scheduled"] = 7
    assert {count: row[f"{count}_count"] for count in COUNTS} == expected
    assert row["is_estimate"] is False


async def test_a_scheduled_job_becomes_pending_with_time(db: Connection) -> None:
    await later(db, 1)
    assert (await stats(db))["scheduled_count"] == 1

    await set_clock(db, "1 hour")
    row = await stats(db)
    assert (row["scheduled_count"], row["pending_count"]) == (0, 1)


async def test_totals_never_fall(db: Connection) -> None:
    for state in ("completed", "failed", "cancelled", "pending"):
        await job_in(db, state)
    before = await stats(db)
    await set_clock(db, "1 year")
    await call(db, "apply_retention")
    await call(db, "fold_counts")
    after = await stats(db)

    totals = ["enqueued_total", "completed_total", "failed_total"]
    assert [before[total] for total in totals] == [4, 1, 1]
    assert [after[total] for total in totals] == [4, 1, 1]
    assert [after[f"{count}_count"] for count in COUNTS] == [1, 0, 0, 0, 0, 0, 0]


async def test_a_retried_dead_letter_counts_each_time_it_dies(db: Connection) -> None:
    job_id = await job_in(db, "failed")
    await call(db, "retry_job", job_id=job_id)
    (held,) = await claim(db)
    await call(db, "fail_job", **pair(held), retryable=False)

    row = await stats(db)
    assert (row["failed_total"], row["failed_count"]) == (2, 1)
    assert row["enqueued_total"] == 1


async def test_a_retry_is_no_failure(db: Connection) -> None:
    held = await running(db)
    await call(db, "fail_job", **pair(held))

    assert (await stats(db))["failed_total"] == 0


async def test_the_oldest_pending_age_is_that_of_the_longest_due(
    db: Connection,
) -> None:
    async with db.transaction():
        await later(db, -1)
        await later(db, -3)
        await later(db, 5)
        assert (await stats(db))["oldest_pending_age"] == timedelta(hours=3)
        await claim(db)
        assert (await stats(db))["oldest_pending_age"] == timedelta(hours=1)
        await claim(db)
        assert (await stats(db))["oldest_pending_age"] is None


async def test_averages_are_over_what_was_completed(db: Connection) -> None:
    await set_clock(db, "-10 s")
    await insert_many(db, 2)
    await set_clock(db, "-8 s")
    held = await claim(db, 2)
    await set_clock(db, "-3 s")
    await call(db, "complete_jobs", **pairs(*held))
    await set_clock(db, "0")

    row = await stats(db)
    assert row["avg_queue_time_ms"] == pytest.approx(2000, abs=1900)
    assert row["avg_execution_time_ms"] == pytest.approx(5000, abs=1900)


async def test_time_before_a_job_was_due_is_no_time_in_the_queue(
    db: Connection,
) -> None:
    await later(db, 1)
    await set_clock(db, "1 hour 2 seconds")
    (held,) = await claim(db)
    await call(db, "complete_job", **pair(held))

    assert (await stats(db))["avg_queue_time_ms"] == pytest.approx(2000, abs=1900)


async def test_averages_forget_after_five_minutes(db: Connection) -> None:
    await job_in(db, "completed")
    assert (await stats(db))["avg_execution_time_ms"] is not None
    await set_clock(db, "5 minutes 10 seconds")
    await call(db, "fold_counts")

    row = await stats(db)
    assert (row["avg_queue_time_ms"], row["avg_execution_time_ms"]) == (None, None)


@pytest.mark.parametrize("state", ["pending", "failed", "cancelled"])
async def test_averages_are_null_when_nothing_was_completed(
    db: Connection, state: str
) -> None:
    await job_in(db, state)

    row = await stats(db)
    assert (row["avg_queue_time_ms"], row["avg_execution_time_ms"]) == (None, None)


async def test_every_queue_ever_used_and_every_policy_has_a_row(db: Connection) -> None:
    await set_queue(db, "policy")
    for queue, state in [("b", "completed"), ("a", "failed"), ("c", "pending")]:
        await job_in(db, state, queue=queue)
    await set_clock(db, "1 year")
    await call(db, "apply_retention")

    names = [row["queue"] for row in await rows(db, "get_queue_stats")]
    assert names == ["a", "b", "c", "policy"]


async def test_one_queue_is_told_as_all_of_them_would_be(db: Connection) -> None:
    async with db.transaction():
        for queue in ("a", "b"):
            await job_in(db, "completed", queue=queue)
            await job_in(db, "pending", queue=queue)
        both = await rows(db, "get_queue_stats")
        assert both == [await stats(db, "a"), await stats(db, "b")]


async def test_it_only_reads(db: Connection) -> None:
    await insert(db)
    async with db.transaction(readonly=True):
        assert (await stats(db))["pending_count"] == 1

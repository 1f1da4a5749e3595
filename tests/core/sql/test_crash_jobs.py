"""What a crash does to a job, as the sweep tells it; see crash_jobs."""

from datetime import timedelta
from typing import Any

import pytest

from support import Connection
from support.sql.helpers import (
    Row,
    call,
    claim_batch,
    insert,
    job,
    leaf,
    rows,
    set_clock,
    set_queue,
    sweep,
)


async def crash(db: Connection, job_id: int) -> Row:
    """Claim the job a day later, let its lease run out, and sweep; the row."""
    day = 2 * (await job(db, job_id))["crash_count"] + 1
    await set_clock(db, f"{day} days")
    (held,) = await rows(db, "claim_next_job", worker="w1")
    assert held["id"] == job_id
    assert await sweep(db, f"{day + 1} days") == 1
    return await job(db, job_id)


async def test_the_first_two_crashes_give_the_attempt_back(db: Connection) -> None:
    job_id = await insert(db)
    before = await job(db, job_id)

    for crash_count in (1, 2):
        row = await crash(db, job_id)
        changed = {column for column in before if before[column] != row[column]}
        assert changed == {"crash_count", "errors"}
        assert row["crash_count"] == crash_count


async def test_from_the_third_crash_on_the_attempt_counts_and_backs_off(
    db: Connection,
) -> None:
    await set_queue(db, backoff_base=timedelta(days=1), max_crashes=9)
    job_id = await insert(db, crash_count=2)
    row = await crash(db, job_id)

    assert (row["status"], row["attempt"], row["crash_count"]) == ("pending", 1, 3)
    assert row["run_at"] > row["created_at"] + timedelta(days=2)


async def test_the_fifth_crash_is_the_last(db: Connection) -> None:
    job_id = await insert(db)
    crashes = [await crash(db, job_id) for _ in range(5)]

    assert [row["status"] for row in crashes] == ["pending"] * 4 + ["failed"]
    row = crashes[-1]
    assert (row["status"], row["crash_count"], row["attempt"]) == ("failed", 5, 3)
    assert await leaf(db, job_id) == "jobs_failed"


@pytest.mark.parametrize("max_crashes", [1, 2, 3, 7])
async def test_the_queue_says_how_many_crashes_are_too_many(
    db: Connection, max_crashes: int
) -> None:
    await set_queue(db, max_crashes=max_crashes)
    job_id = await insert(db)

    states = [(await crash(db, job_id))["status"] for _ in range(max_crashes)]
    assert states == ["pending"] * (max_crashes - 1) + ["failed"]


@pytest.mark.parametrize(("crash_count", "state"), [(1, "pending"), (2, "failed")])
async def test_attempts_that_are_used_up_count_from_the_third_crash_on(
    db: Connection, crash_count: int, state: str
) -> None:
    job_id = await insert(db, max_attempts=1, crash_count=crash_count)

    assert (await crash(db, job_id))["status"] == state


@pytest.mark.parametrize(("own", "of_queue"), [(4, 9), (None, 4)])
async def test_the_limit_of_attempts_is_the_jobs_or_the_queues(
    db: Connection, own: int | None, of_queue: int
) -> None:
    await set_queue(db, max_attempts=of_queue)
    columns: dict[str, Any] = {"max_attempts": own, "crash_count": 2, "attempt": 3}
    job_id = await insert(db, **columns)

    assert (await crash(db, job_id))["status"] == "failed"


async def test_every_crash_names_the_worker_it_took_down(db: Connection) -> None:
    job_id = await insert(db)
    errors = [await crash(db, job_id) for _ in range(5)][-1]["errors"]

    assert [(e["attempt"], e["worker"], e["reason"]) for e in errors] == [
        (1, "w1", "crashed"),
        (1, "w1", "crashed"),
        (1, "w1", "crashed"),
        (2, "w1", "crashed"),
        (3, "w1", "crashed"),
    ]
    assert errors[0]["message"] == "the lease ran out; worker w1"


@pytest.mark.parametrize("crash_count", [0, 1, 4])
async def test_one_whose_cancellation_was_asked_for_is_cancelled(
    db: Connection, crash_count: int
) -> None:
    job_id = await insert(db, crash_count=crash_count)
    await rows(db, "claim_next_job")
    await call(db, "cancel_job", job_id=job_id)
    assert await sweep(db, "1 hour") == 1

    row = await job(db, job_id)
    assert (row["status"], row["crash_count"]) == ("cancelled", crash_count + 1)


async def test_a_suspect_is_found_by_quarantine_only_and_comes_back_after_success(
    db: Connection,
) -> None:
    job_id = await insert(db)
    for _ in range(2):
        await crash(db, job_id)

    assert (await claim_batch(db, 10))["ids"] == []
    assert await call(db, "next_suspect_run_at", queues=["default"]) is not None
    taken = await claim_batch(db, 10, suspects=True)
    assert taken["ids"] == [job_id]


async def test_a_job_that_ran_without_a_counted_attempt_can_be_swept(
    db: Connection,
) -> None:
    job_id = await insert(db)
    await rows(db, "claim_next_job")
    await db.execute("update pgwake.jobs set attempt = 0")

    assert await sweep(db, "1 hour") == 1
    assert (await job(db, job_id))["attempt"] == 0

import pytest

from support import Connection
from support.sql.helpers import (
    blocking,
    call,
    claim,
    insert,
    job,
    leaf,
    pair,
    running,
    status,
)


async def cancel(db: Connection, job_id: int | None) -> str:
    answer: str = await call(db, "cancel_job", job_id=job_id)
    return answer


@pytest.mark.parametrize("state", ["waiting", "pending"])
async def test_a_job_that_has_not_started_ends_at_once(
    db: Connection, state: str
) -> None:
    job_id = await insert(db, status=state)

    assert await cancel(db, job_id) == "cancelled"
    row = await job(db, job_id)
    assert row["status"] == "cancelled"
    assert await leaf(db, job_id) == f"jobs_finished_{row['finished_slot']}"


async def test_a_running_one_is_asked_to_stop(db: Connection) -> None:
    held = await running(db)

    assert await cancel(db, held["id"]) == "cancel_requested"
    row = await job(db, held["id"])
    assert (row["status"], row["lease_id"]) == ("running", held["lease_id"])
    assert row["cancel_requested_at"] is not None


async def test_asking_again_changes_nothing(db: Connection) -> None:
    held = await running(db)
    await cancel(db, held["id"])
    before = await job(db, held["id"])

    assert await cancel(db, held["id"]) == "cancel_requested"
    assert await job(db, held["id"]) == before


async def test_cancelling_again_is_answered_as_the_first_time(db: Connection) -> None:
    job_id = await insert(db)

    assert [await cancel(db, job_id) for _ in range(3)] == ["cancelled"] * 3


@pytest.mark.parametrize("end", ["complete", "fail"])
async def test_one_that_had_ended_before_is_left_as_it_is(
    db: Connection, end: str
) -> None:
    held = await running(db, max_attempts=1)
    await call(db, f"{end}_job", **pair(held))
    before = await job(db, held["id"])

    assert await cancel(db, held["id"]) == before["status"]
    assert await job(db, held["id"]) == before


async def test_a_cancelled_job_is_not_claimed(db: Connection) -> None:
    await cancel(db, await insert(db))

    assert await claim(db) == []


async def test_a_cancel_that_waits_for_a_claim_asks_the_worker(
    db: Connection, other: Connection
) -> None:
    job_id = await insert(db)
    async with blocking(db, other, cancel(other, job_id)) as task:
        await claim(db)

    assert await task == "cancel_requested"
    assert await status(db, job_id) == "running"


async def test_a_cancel_that_waits_for_an_end_tells_how_it_ended(
    db: Connection, other: Connection
) -> None:
    held = await running(db)
    async with blocking(db, other, cancel(other, held["id"])) as task:
        await call(db, "complete_job", **pair(held))

    assert await task == "completed"


async def test_a_cancel_that_waits_for_a_retry_cancels_it(
    db: Connection, other: Connection
) -> None:
    held = await running(db)
    async with blocking(db, other, cancel(other, held["id"])) as task:
        assert await call(db, "fail_job", **pair(held)) == "retry"

    assert await task == "cancelled"
    assert await status(db, held["id"]) == "cancelled"

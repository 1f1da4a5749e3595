import pytest

from support import Connection
from support.sql.helpers import (
    ABSENT,
    blocking,
    call,
    claim,
    insert,
    job,
    leaf,
    pair,
    refused,
    running,
    status,
)


async def cancel(connection: Connection, job_id: int | None) -> str:
    answer: str = await call(connection, "cancel_job", job_id=job_id)
    return answer


@pytest.mark.parametrize("state", ["waiting", "pending"])
async def test_a_job_that_has_not_started_ends_at_once(
    connection: Connection, state: str
) -> None:
    job_id = await insert(connection, status=state)

    assert await cancel(connection, job_id) == "cancelled"
    row = await job(connection, job_id)
    assert row["status"] == "cancelled"
    assert await leaf(connection, job_id) == f"jobs_finished_{row['finished_slot']}"


async def test_a_running_one_is_asked_to_stop(connection: Connection) -> None:
    held = await running(connection)

    assert await cancel(connection, held["id"]) == "cancel_requested"
    row = await job(connection, held["id"])
    assert (row["status"], row["lease_id"]) == ("running", held["lease_id"])
    assert row["cancel_requested_at"] is not None


async def test_asking_again_changes_nothing(connection: Connection) -> None:
    held = await running(connection)
    await cancel(connection, held["id"])
    before = await job(connection, held["id"])

    assert await cancel(connection, held["id"]) == "cancel_requested"
    assert await job(connection, held["id"]) == before


async def test_cancelling_again_is_answered_as_the_first_time(
    connection: Connection,
) -> None:
    job_id = await insert(connection)

    assert [await cancel(connection, job_id) for _ in range(3)] == ["cancelled"] * 3


@pytest.mark.parametrize("end", ["complete", "fail"])
async def test_one_that_had_ended_before_is_left_as_it_is(
    connection: Connection, end: str
) -> None:
    held = await running(connection, max_attempts=1)
    await call(connection, f"{end}_job", **pair(held))
    before = await job(connection, held["id"])

    assert await cancel(connection, held["id"]) == before["status"]
    assert await job(connection, held["id"]) == before


@pytest.mark.parametrize("job_id", [ABSENT, None])
async def test_one_that_is_not_there_is_no_such_job(
    connection: Connection, job_id: int | None
) -> None:
    with refused("PW001"):
        await cancel(connection, job_id)


async def test_a_cancelled_job_is_not_claimed(connection: Connection) -> None:
    await cancel(connection, await insert(connection))

    assert await claim(connection) == []


async def test_a_cancel_that_waits_for_a_claim_asks_the_worker(
    connection: Connection, other: Connection
) -> None:
    job_id = await insert(connection)
    async with blocking(connection, other, cancel(other, job_id)) as task:
        await claim(connection)

    assert await task == "cancel_requested"
    assert await status(connection, job_id) == "running"


async def test_a_cancel_that_waits_for_an_end_tells_how_it_ended(
    connection: Connection, other: Connection
) -> None:
    held = await running(connection)
    async with blocking(connection, other, cancel(other, held["id"])) as task:
        await call(connection, "complete_job", **pair(held))

    assert await task == "completed"


async def test_a_cancel_that_waits_for_a_retry_cancels_it(
    connection: Connection, other: Connection
) -> None:
    held = await running(connection)
    async with blocking(connection, other, cancel(other, held["id"])) as task:
        assert await call(connection, "fail_job", **pair(held)) == "retry"

    assert await task == "cancelled"
    assert await status(connection, held["id"]) == "cancelled"

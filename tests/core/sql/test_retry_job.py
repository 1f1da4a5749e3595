from typing import Any, Protocol

import pytest

from support import Connection
from support.sql.helpers import (
    ABSENT,
    Row,
    blocking,
    call,
    claim,
    insert,
    job,
    job_in,
    leaf,
    pair,
    refused,
    rows,
    running,
    set_clock,
    sweep,
)


async def retry(connection: Connection, job_id: int | None) -> None:
    await call(connection, "retry_job", job_id=job_id)


class End(Protocol):
    async def __call__(self, connection: Connection, **columns: Any) -> Row: ...


async def failed(connection: Connection, **columns: Any) -> Row:
    held = await running(connection, kind="a", **columns)
    await call(connection, "fail_job", **pair(held), error="boom", retryable=False)
    return await job(connection, held["id"])


async def cancelled(connection: Connection, **columns: Any) -> Row:
    held = await running(connection, kind="a", **columns)
    await call(connection, "cancel_job", job_id=held["id"])
    await call(connection, "fail_job", **pair(held), error="stopped")
    return await job(connection, held["id"])


@pytest.mark.parametrize("end", [failed, cancelled])
async def test_an_ended_job_is_pending_again_with_all_attempts_before_it(
    connection: Connection, end: End
) -> None:
    counts = {"attempt": 5, "crash_count": 1, "bounce_count": 3}
    ended = await end(connection, **counts, payload={"a": 1}, unique_key="k")
    async with connection.transaction():
        await retry(connection, ended["id"])
        now = await call(connection, "now")

    assert await leaf(connection, ended["id"]) == "jobs_live"
    cleared = ["lease_id", "claimed_by", "cancel_requested_at", "started_at"]
    cleared += ["finished_at", "finished_slot", "fingerprint"]
    assert await job(connection, ended["id"]) == (
        ended
        | {"status": "pending", "run_at": now}
        | dict.fromkeys(counts, 0)
        | dict.fromkeys(cleared)
    )


async def test_it_can_be_claimed_at_once(connection: Connection) -> None:
    ended = await failed(connection)
    await retry(connection, ended["id"])

    (claimed,) = await claim(connection)
    assert (claimed["id"], claimed["attempt"]) == (ended["id"], 1)


async def test_a_pending_job_that_was_cancelled_can_be_retried(
    connection: Connection,
) -> None:
    job_id = await insert(connection)
    await call(connection, "cancel_job", job_id=job_id)
    await retry(connection, job_id)

    assert [claimed["id"] for claimed in await claim(connection)] == [job_id]


async def test_a_job_that_crashed_too_often_is_no_suspect_any_more(
    connection: Connection,
) -> None:
    job_id = await insert(connection, crash_count=4)
    await rows(connection, "claim_next_job")
    await sweep(connection, "1 hour")
    await retry(connection, job_id)

    assert [claimed["id"] for claimed in await claim(connection)] == [job_id]


async def test_it_can_end_the_same_way_again(connection: Connection) -> None:
    ended = await failed(connection)
    for _ in range(3):
        await retry(connection, ended["id"])
        (held,) = await claim(connection)
        arguments = {**pair(held), "retryable": False}
        assert await call(connection, "fail_job", **arguments) == "failed"

    assert len((await job(connection, ended["id"]))["errors"]) == 4


@pytest.mark.parametrize("state", ["waiting", "pending", "running", "completed"])
async def test_one_in_another_state_is_refused(
    connection: Connection, state: str
) -> None:
    job_id = await job_in(connection, state)
    before = await job(connection, job_id)

    with refused("PW003"):
        await retry(connection, job_id)
    assert await job(connection, job_id) == before


@pytest.mark.parametrize("job_id", [ABSENT, None])
async def test_one_that_is_not_there_is_no_such_job(
    connection: Connection, job_id: int | None
) -> None:
    with refused("PW001"):
        await retry(connection, job_id)


@pytest.mark.parametrize("end", [failed, cancelled])
async def test_a_key_that_was_taken_meanwhile_is_named_and_nothing_lost(
    connection: Connection, end: End
) -> None:
    ended = await end(connection, unique_key="k")
    live = await insert(connection, "a", unique_key="k")

    with refused("PW005") as caught:
        await retry(connection, ended["id"])
    assert caught.value.detail == f"job {live}"
    assert await job(connection, ended["id"]) == ended


async def test_two_who_retry_the_same_job_retry_it_once(
    connection: Connection, other: Connection
) -> None:
    ended = await failed(connection)
    async with blocking(connection, other, retry(other, ended["id"])) as task:
        await retry(connection, ended["id"])

    with refused("PW003"):
        await task
    assert (await job(connection, ended["id"]))["status"] == "pending"


async def test_two_retries_for_one_key_take_turns(
    connection: Connection, other: Connection
) -> None:
    first = await failed(connection, unique_key="k")
    second = await failed(connection, unique_key="k")
    async with blocking(connection, other, retry(other, second["id"])) as task:
        await retry(connection, first["id"])

    with refused("PW005") as caught:
        await task
    assert caught.value.detail == f"job {first['id']}"
    assert (await job(connection, second["id"]))["status"] == "failed"


async def test_a_late_end_of_an_earlier_life_is_refused(
    connection: Connection,
) -> None:
    held = await running(connection)
    await call(connection, "fail_job", **pair(held), retryable=False)
    await retry(connection, held["id"])
    await set_clock(connection, "1 minute")

    with refused("PW002"):
        await call(connection, "fail_job", **pair(held), retryable=False)

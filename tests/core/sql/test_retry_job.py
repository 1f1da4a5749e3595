from typing import Any, Protocol

import pytest

from support import Connection
from support.sql.helpers import (
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


async def retry(db: Connection, job_id: int | None) -> None:
    await call(db, "retry_job", job_id=job_id)


class End(Protocol):
    async def __call__(self, db: Connection, **columns: Any) -> Row: ...


async def failed(db: Connection, **columns: Any) -> Row:
    held = await running(db, kind="a", **columns)
    await call(db, "fail_job", **pair(held), error="boom", retryable=False)
    return await job(db, held["id"])


async def cancelled(db: Connection, **columns: Any) -> Row:
    held = await running(db, kind="a", **columns)
    await call(db, "cancel_job", job_id=held["id"])
    await call(db, "fail_job", **pair(held), error="stopped")
    return await job(db, held["id"])


@pytest.mark.parametrize("end", [failed, cancelled])
async def test_an_ended_job_is_pending_again_with_all_attempts_before_it(
    db: Connection, end: End
) -> None:
    counts = {"attempt": 5, "crash_count": 1, "bounce_count": 3}
    ended = await end(db, **counts, payload={"a": 1}, unique_key="k")
    async with db.transaction():
        await retry(db, ended["id"])
        now = await call(db, "now")

    assert await leaf(db, ended["id"]) == "jobs_live"
    cleared = ["lease_id", "claimed_by", "cancel_requested_at", "started_at"]
    cleared += ["finished_at", "finished_slot", "fingerprint"]
    assert await job(db, ended["id"]) == (
        ended
        | {"status": "pending", "run_at": now}
        | dict.fromkeys(counts, 0)
        | dict.fromkeys(cleared)
    )


async def test_it_can_be_claimed_at_once(db: Connection) -> None:
    ended = await failed(db)
    await retry(db, ended["id"])

    (claimed,) = await claim(db)
    assert (claimed["id"], claimed["attempt"]) == (ended["id"], 1)


async def test_a_pending_job_that_was_cancelled_can_be_retried(db: Connection) -> None:
    job_id = await insert(db)
    await call(db, "cancel_job", job_id=job_id)
    await retry(db, job_id)

    assert [claimed["id"] for claimed in await claim(db)] == [job_id]


async def test_a_job_that_crashed_too_often_is_no_suspect_any_more(
    db: Connection,
) -> None:
    job_id = await insert(db, crash_count=4)
    await rows(db, "claim_next_job")
    await sweep(db, "1 hour")
    await retry(db, job_id)

    assert [claimed["id"] for claimed in await claim(db)] == [job_id]


async def test_it_can_end_the_same_way_again(db: Connection) -> None:
    ended = await failed(db)
    for _ in range(3):
        await retry(db, ended["id"])
        (held,) = await claim(db)
        arguments = {**pair(held), "retryable": False}
        assert await call(db, "fail_job", **arguments) == "failed"

    assert len((await job(db, ended["id"]))["errors"]) == 4


@pytest.mark.parametrize("state", ["waiting", "pending", "running", "completed"])
async def test_one_in_another_state_is_refused(db: Connection, state: str) -> None:
    job_id = await job_in(db, state)
    before = await job(db, job_id)

    with refused("PW003"):
        await retry(db, job_id)
    assert await job(db, job_id) == before


@pytest.mark.parametrize("end", [failed, cancelled])
async def test_a_key_that_was_taken_meanwhile_is_named_and_nothing_lost(
    db: Connection, end: End
) -> None:
    ended = await end(db, unique_key="k")
    live = await insert(db, "a", unique_key="k")

    with refused("PW005") as caught:
        await retry(db, ended["id"])
    assert caught.value.detail == f"job {live}"
    assert await job(db, ended["id"]) == ended


async def test_two_who_retry_the_same_job_retry_it_once(
    db: Connection, other: Connection
) -> None:
    ended = await failed(db)
    async with blocking(db, other, retry(other, ended["id"])) as task:
        await retry(db, ended["id"])

    with refused("PW003"):
        await task
    assert (await job(db, ended["id"]))["status"] == "pending"


async def test_two_retries_for_one_key_take_turns(
    db: Connection, other: Connection
) -> None:
    first = await failed(db, unique_key="k")
    second = await failed(db, unique_key="k")
    async with blocking(db, other, retry(other, second["id"])) as task:
        await retry(db, first["id"])

    with refused("PW005") as caught:
        await task
    assert caught.value.detail == f"job {first['id']}"
    assert (await job(db, second["id"]))["status"] == "failed"


async def test_a_late_end_of_an_earlier_life_is_refused(db: Connection) -> None:
    held = await running(db)
    await call(db, "fail_job", **pair(held), retryable=False)
    await retry(db, held["id"])
    await set_clock(db, "1 minute")

    with refused("PW002"):
        await call(db, "fail_job", **pair(held), retryable=False)

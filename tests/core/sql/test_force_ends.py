"""force_complete_job and force_fail_job: for a person who knows better."""

import pytest

from support import Connection
from support.sql.helpers import (
    blocking,
    call,
    claim,
    insert,
    job,
    job_in,
    leaf,
    pair,
    pairs,
    refused,
    running,
)

FUNCTIONS = {"force_complete_job": "completed", "force_fail_job": "failed"}

pytestmark = pytest.mark.parametrize("function", FUNCTIONS)


async def force(
    db: Connection, function: str, job_id: int | None, reason: str | None = "x"
) -> None:
    await call(db, function, job_id=job_id, reason=reason)


@pytest.mark.parametrize("state", ["waiting", "pending", "running"])
async def test_a_live_job_ends_whatever_its_state(
    db: Connection, function: str, state: str
) -> None:
    job_id = await job_in(db, state)
    await force(db, function, job_id)

    row = await job(db, job_id)
    assert row["status"] == FUNCTIONS[function]
    assert row["status"] == "failed" or row["result"] is None
    place = await leaf(db, job_id)
    assert place in ("jobs_failed", f"jobs_finished_{row['finished_slot']}")


async def test_the_reason_is_kept_with_who_gave_it(
    db: Connection, function: str
) -> None:
    job_id = await insert(db)
    await force(db, function, job_id, "done by hand")

    (error,) = (await job(db, job_id))["errors"]
    assert error["reason"] == "forced"
    assert error["message"] == "done by hand (by pgwake_owner)"


@pytest.mark.parametrize("end", ["complete_job", "fail_job"])
async def test_a_worker_that_still_runs_it_is_refused(
    db: Connection, function: str, end: str
) -> None:
    held = await running(db)
    await force(db, function, held["id"])

    with refused("PW002"):
        await call(db, end, **pair(held))


async def test_a_worker_that_claimed_it_meanwhile_is_refused_too(
    db: Connection, other: Connection, function: str
) -> None:
    job_id = await insert(db)
    async with blocking(db, other, force(other, function, job_id)) as task:
        (held,) = await claim(db)
    await task

    for end in ("complete_jobs", "fail_jobs"):
        assert await call(db, end, **pairs(held)) == ["lease_lost"]


async def test_an_end_that_comes_first_stands(
    db: Connection, other: Connection, function: str
) -> None:
    held = await running(db)
    async with blocking(db, other, force(other, function, held["id"])) as task:
        await call(db, "fail_job", **pair(held), retryable=False)

    with refused("PW001"):
        await task
    assert (await job(db, held["id"]))["errors"][0]["reason"] == "failed"


@pytest.mark.parametrize("reason", [None, ""])
async def test_it_must_be_said_why(
    db: Connection, function: str, reason: str | None
) -> None:
    job_id = await insert(db)

    with refused("PW003"):
        await force(db, function, job_id, reason)


async def test_one_that_has_ended_is_no_live_job(db: Connection, function: str) -> None:
    job_id = await insert(db)
    await force(db, function, job_id)
    before = await job(db, job_id)

    with refused("PW001"):
        await force(db, function, job_id)
    assert await job(db, job_id) == before

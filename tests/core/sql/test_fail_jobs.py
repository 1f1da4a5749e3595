"""fail_jobs, and fail_job which is a batch of one."""

from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from support import Connection
from support.sql.helpers import (
    ABSENT,
    Row,
    call,
    claim,
    insert,
    insert_many,
    job,
    leaf,
    pair,
    pairs,
    refused,
    running,
    set_clock,
)


async def fail(db: Connection, held: Row, **arguments: Any) -> str:
    outcome: str = await call(db, "fail_job", **pair(held), **arguments)
    return outcome


async def fail_and_reclaim(db: Connection, held: Row) -> Row:
    assert await fail(db, held, retry_in=timedelta(0)) == "retry"
    (again,) = await claim(db)
    return again


async def test_a_failed_attempt_leads_to_another(db: Connection) -> None:
    held = await running(db)

    assert await fail(db, held, error="boom") == "retry"
    row = await job(db, held["id"])
    assert (row["status"], row["attempt"], row["lease_id"]) == ("pending", 1, None)
    (again,) = await claim(db) or await claim_later(db)
    assert (again["id"], again["attempt"]) == (held["id"], 2)


async def claim_later(db: Connection) -> list[Row]:
    await set_clock(db, "1 hour")
    return await claim(db)


async def test_a_retry_changes_nothing_but_what_it_must(db: Connection) -> None:
    columns = {"crash_count": 1, "bounce_count": 2, "unique_key": "k"}
    job_id = await insert(db, **columns)
    before = await job(db, job_id)
    (held,) = await claim(db)
    await fail(db, held)

    after = await job(db, job_id)
    changed = {column for column in before if before[column] != after[column]}
    assert changed == {"attempt", "run_at", "errors"}


async def test_the_error_is_kept_with_what_is_known_of_the_attempt(
    db: Connection,
) -> None:
    held = await running(db)
    async with db.transaction():
        await fail(db, held, error="boom", reason="timeout")
        at = await db.fetchval("select to_jsonb(pgwake.now())")

    assert (await job(db, held["id"]))["errors"] == [
        {"attempt": 1, "at": at, "worker": "w1", "reason": "timeout", "message": "boom"}
    ]


async def test_only_the_last_twenty_errors_are_kept_each_clipped(
    db: Connection,
) -> None:
    held = await running(db, max_attempts=100)
    for n in range(25):
        error = f"{n} " + "é" * 10000
        await fail(db, held, error=error, retry_in=timedelta(0), reason="r" * 999)
        (held,) = await claim(db)

    errors = (await job(db, held["id"]))["errors"]
    assert [error["attempt"] for error in errors] == list(range(6, 26))
    assert errors[-1]["message"] == ("24 " + "é" * 10000)[:2000]
    assert {len(error["reason"]) for error in errors} == {100}


async def test_the_last_attempt_sends_it_to_the_dead_letters(db: Connection) -> None:
    held = await running(db, max_attempts=2)
    held = await fail_and_reclaim(db, held)

    assert await fail(db, held, error="boom") == "failed"
    assert await leaf(db, held["id"]) == "jobs_failed"
    dead = await job(db, held["id"])
    assert (dead["attempt"], dead["lease_id"]) == (2, held["lease_id"])
    assert dead["errors"][-1]["message"] == "boom"


@pytest.mark.parametrize(("attempt", "outcome"), [(18, "retry"), (19, "failed")])
async def test_without_any_limit_there_are_twenty_attempts(
    db: Connection, attempt: int, outcome: str
) -> None:
    held = await running(db, attempt=attempt)

    assert await fail(db, held) == outcome


async def test_outcomes_come_in_the_order_asked(db: Connection) -> None:
    await insert_many(db, 4)
    a, b, c, d = await claim(db, 4)
    await call(db, "release_jobs", **pairs(c))
    await call(db, "cancel_job", job_id=d["id"])
    absent = {"id": ABSENT, "lease_id": a["lease_id"]}

    outcomes = await call(
        db,
        "fail_jobs",
        **pairs(d, b, absent, c, a),
        errors=["of d", "of b", None, None, "of a"],
        retryables=[None, False, None, None, None],
    )
    assert outcomes == ["cancelled", "failed", "no_such_job", "lease_lost", "retry"]
    for held, message in [(a, "of a"), (b, "of b"), (d, "of d")]:
        errors = (await job(db, held["id"]))["errors"]
        assert [error["message"] for error in errors] == [message]


async def test_a_batch_is_written_and_counted_as_one(db: Connection) -> None:
    await insert_many(db, 40)
    held = await claim(db, 40)
    await db.execute("delete from pgwake.counts")
    told = await call(db, "fail_jobs", **pairs(*held), retryables=[True, False] * 20)
    assert told == ["retry", "failed"] * 20
    # A row of those that are tried again, and one of the dead letters.
    assert await db.fetchval("select count(*) from pgwake.counts") <= 2


@pytest.mark.parametrize(
    "argument", ["errors", "reasons", "retry_ins", "retryables", "tracebacks"]
)
@pytest.mark.parametrize("length", [0, 1, 3])
async def test_arrays_that_do_not_pair_up_are_refused(
    db: Connection, argument: str, length: int
) -> None:
    await insert_many(db, 2)
    held = await claim(db, 2)

    with refused("PW003"):
        await call(db, "fail_jobs", **pairs(*held), **{argument: [None] * length})


async def test_an_end_repeated_is_answered_as_the_first_time(db: Connection) -> None:
    held = await running(db)
    await fail(db, held, retryable=False, error="first")

    assert await fail(db, held, error="second") == "failed"
    errors = (await job(db, held["id"]))["errors"]
    assert [error["message"] for error in errors] == ["first"]


async def test_a_retry_repeated_is_answered_as_the_first_time(db: Connection) -> None:
    """As a worker repeats it when the answer was lost, until another attempt failed."""
    a, b = await running(db), await running(db)
    told: Row = {"errors": ["x" * 3000, ""], "tracebacks": ["y" * 3000, None]}
    again: Row = {"retry_ins": [timedelta(0)] * 2, **pairs(a, b), **told}
    await call(db, "fail_jobs", **again)
    before = [await job(db, held["id"]) for held in (a, b)]
    assert await call(db, "fail_jobs", **again) == ["retry", "retry"]
    assert [await job(db, held["id"]) for held in (a, b)] == before
    assert await call(db, "fail_jobs", **again | {"reasons": ["timeout", None]}) == [
        "lease_lost",
        "retry",
    ]

    completed, failed = await claim(db, 2)
    assert await call(db, "fail_jobs", **again) == ["retry", "retry"]
    await call(db, "complete_jobs", **pairs(completed))
    await fail(db, failed, error="another")
    assert await call(db, "fail_jobs", **again) == ["retry", "lease_lost"]

    other = await running(db)  # it has no errors
    stale: Row = pairs({**other, "lease_id": uuid4()})
    assert await call(db, "fail_jobs", **stale, errors=["x"]) == ["lease_lost"]


async def test_a_cancellation_that_was_asked_for_is_honoured(db: Connection) -> None:
    held = await running(db)
    await call(db, "cancel_job", job_id=held["id"])

    for _ in range(2):
        assert await fail(db, held, error="stopped") == "cancelled"
    ended = await job(db, held["id"])
    assert (ended["status"], ended["errors"][0]["message"]) == ("cancelled", "stopped")


async def test_a_completed_job_can_not_be_failed(db: Connection) -> None:
    held = await running(db)
    await call(db, "complete_job", **pair(held))

    with refused("PW002"):
        await fail(db, held)

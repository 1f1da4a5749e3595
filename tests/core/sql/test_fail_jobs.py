"""fail_jobs, and fail_job which is a batch of one."""

from datetime import timedelta
from typing import Any

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
    set_queue,
)


async def fail(connection: Connection, held: Row, **arguments: Any) -> str:
    outcome: str = await call(connection, "fail_job", **pair(held), **arguments)
    return outcome


async def fail_and_reclaim(connection: Connection, held: Row) -> Row:
    assert await fail(connection, held, retry_in=timedelta(0)) == "retry"
    (again,) = await claim(connection)
    return again


async def test_a_failed_attempt_leads_to_another(connection: Connection) -> None:
    held = await running(connection)

    assert await fail(connection, held, error="boom") == "retry"
    row = await job(connection, held["id"])
    assert (row["status"], row["attempt"], row["lease_id"]) == ("pending", 1, None)
    (again,) = await claim(connection) or await claim_later(connection)
    assert (again["id"], again["attempt"]) == (held["id"], 2)


async def claim_later(connection: Connection) -> list[Row]:
    await set_clock(connection, "1 hour")
    return await claim(connection)


async def test_a_retry_changes_nothing_but_what_it_must(
    connection: Connection,
) -> None:
    columns = {"crash_count": 1, "bounce_count": 2, "unique_key": "k"}
    job_id = await insert(connection, **columns)
    before = await job(connection, job_id)
    (held,) = await claim(connection)
    await fail(connection, held)

    after = await job(connection, job_id)
    changed = {column for column in before if before[column] != after[column]}
    assert changed == {"attempt", "run_at", "errors"}


async def test_the_error_is_kept_with_what_is_known_of_the_attempt(
    connection: Connection,
) -> None:
    held = await running(connection)
    async with connection.transaction():
        await fail(connection, held, error="boom", reason="timeout")
        at = await connection.fetchval("select to_jsonb(pgwake.now())")

    assert (await job(connection, held["id"]))["errors"] == [
        {
            "attempt": 1,
            "at": at,
            "worker": "w1",
            "reason": "timeout",
            "message": "boom",
        }
    ]


async def test_only_the_last_twenty_errors_are_kept_each_clipped(
    connection: Connection,
) -> None:
    held = await running(connection, max_attempts=100)
    for n in range(25):
        error = f"{n} " + "é" * 10000
        await fail(
            connection, held, error=error, retry_in=timedelta(0), reason="r" * 999
        )
        (held,) = await claim(connection)

    errors = (await job(connection, held["id"]))["errors"]
    assert [error["attempt"] for error in errors] == list(range(6, 26))
    assert errors[-1]["message"] == ("24 " + "é" * 10000)[:2000]
    assert {len(error["reason"]) for error in errors} == {100}


async def test_the_last_attempt_sends_it_to_the_dead_letters(
    connection: Connection,
) -> None:
    held = await running(connection, max_attempts=2)
    held = await fail_and_reclaim(connection, held)

    assert await fail(connection, held, error="boom") == "failed"
    assert await leaf(connection, held["id"]) == "jobs_failed"
    dead = await job(connection, held["id"])
    assert (dead["attempt"], dead["lease_id"]) == (2, held["lease_id"])
    assert dead["errors"][-1]["message"] == "boom"


async def test_the_jobs_own_limit_precedes_its_kinds_and_the_queues(
    connection: Connection,
) -> None:
    async def outcome(own: int | None, kind: int | None, queue: int | None) -> str:
        await set_queue(connection, max_attempts=queue)
        await connection.execute(
            "insert into pgwake.kinds (name, declared_max_attempts) values ('k', $1)"
            " on conflict (name) do update set declared_max_attempts = $1",
            kind,
        )
        held = await running(connection, kind="k", max_attempts=own)
        answer = await fail(connection, held)
        await call(connection, "cancel_job", job_id=held["id"])
        return answer

    assert await outcome(1, 9, 9) == "failed"
    assert await outcome(9, 1, 1) == "retry"
    assert await outcome(None, 1, 9) == "failed"
    assert await outcome(None, 9, 1) == "retry"
    assert await outcome(None, None, 1) == "failed"
    assert await outcome(None, None, None) == "retry"


@pytest.mark.parametrize(("attempt", "outcome"), [(18, "retry"), (19, "failed")])
async def test_without_any_limit_there_are_twenty_attempts(
    connection: Connection, attempt: int, outcome: str
) -> None:
    held = await running(connection, attempt=attempt)

    assert await fail(connection, held) == outcome


async def test_what_can_not_be_retried_is_dead_at_once(connection: Connection) -> None:
    held = await running(connection)

    assert await fail(connection, held, retryable=False) == "failed"


async def test_outcomes_come_in_the_order_asked(connection: Connection) -> None:
    await insert_many(connection, 4)
    a, b, c, d = await claim(connection, 4)
    await call(connection, "release_jobs", **pairs(c))
    await call(connection, "cancel_job", job_id=d["id"])
    absent = {"id": ABSENT, "lease_id": a["lease_id"]}

    outcomes = await call(
        connection,
        "fail_jobs",
        **pairs(d, b, absent, c, a),
        errors=["of d", "of b", None, None, "of a"],
        retryables=[None, False, None, None, None],
    )
    assert outcomes == ["cancelled", "failed", "no_such_job", "lease_lost", "retry"]
    for held, message in [(a, "of a"), (b, "of b"), (d, "of d")]:
        errors = (await job(connection, held["id"]))["errors"]
        assert [error["message"] for error in errors] == [message]


@pytest.mark.parametrize(
    "argument", ["errors", "reasons", "retry_ins", "retryables", "tracebacks"]
)
@pytest.mark.parametrize("length", [0, 1, 3])
async def test_arrays_that_do_not_pair_up_are_refused(
    connection: Connection, argument: str, length: int
) -> None:
    await insert_many(connection, 2)
    held = await claim(connection, 2)

    with refused("PW003"):
        await call(
            connection, "fail_jobs", **pairs(*held), **{argument: [None] * length}
        )


async def test_an_end_repeated_is_answered_as_the_first_time(
    connection: Connection,
) -> None:
    held = await running(connection)
    await fail(connection, held, retryable=False, error="first")

    assert await fail(connection, held, error="second") == "failed"
    errors = (await job(connection, held["id"]))["errors"]
    assert [error["message"] for error in errors] == ["first"]


async def test_a_cancellation_that_was_asked_for_is_honoured(
    connection: Connection,
) -> None:
    held = await running(connection)
    await call(connection, "cancel_job", job_id=held["id"])

    for _ in range(2):
        assert await fail(connection, held, error="stopped") == "cancelled"
    ended = await job(connection, held["id"])
    assert (ended["status"], ended["errors"][0]["message"]) == ("cancelled", "stopped")


async def test_a_completed_job_can_not_be_failed(connection: Connection) -> None:
    held = await running(connection)
    await call(connection, "complete_job", **pair(held))

    with refused("PW002"):
        await fail(connection, held)

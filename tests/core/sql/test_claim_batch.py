"""The form of the claim that workers use, and what its row says."""

from datetime import timedelta
from typing import Any

import pytest

from support import Connect, Connection
from support.sql.helpers import (
    claim,
    claim_batch,
    insert,
    insert_many,
    job,
    refused,
    rows,
    set_clock,
)


async def test_an_empty_queue_gives_one_row_without_jobs(db: Connection) -> None:
    row = await claim_batch(db)

    assert (row["ids"], row["next_run_at"]) == ([], None)


async def test_a_claimed_job_runs_under_a_lease(db: Connection) -> None:
    await set_clock(db, "1 day")
    job_id = await insert(db)
    row = await claim_batch(db, worker="w1", lease=timedelta(minutes=2))

    claimed = await job(db, job_id)
    assert (claimed["status"], claimed["attempt"]) == ("running", 1)
    assert claimed["claimed_by"] == "w1"
    assert claimed["started_at"] == row["claimed_at"]
    assert claimed["lease_expires_at"] == row["claimed_at"] + timedelta(minutes=2)


async def test_one_claim_has_one_lease_id_and_the_next_another(db: Connection) -> None:
    await insert_many(db, 4)
    first, second = await claim(db, 2), await claim(db, 2)

    leases = [job["lease_id"] for job in first + second]
    assert leases[0] == leases[1] != leases[2] == leases[3]


async def test_the_answer_says_what_the_row_says(db: Connection) -> None:
    columns = {"payload": {"a": 1}, "metadata": {"m": 1}, "max_attempts": 7}
    job_id = await insert(db, "k", **columns)
    (claimed,) = await claim(db)

    row = await job(db, job_id)
    assert claimed.pop("options") is None
    assert claimed == {column: row[column] for column in claimed}


@pytest.mark.parametrize(
    ("crash_count", "is_late", "keys"),
    [
        (0, True, {"run_at"}),
        (1, False, {"crash_count"}),
        (2, True, {"run_at", "crash_count"}),
    ],
)
async def test_options_say_what_is_not_as_usual(
    db: Connection, crash_count: int, is_late: bool, keys: set[str]
) -> None:
    run_at = await db.fetchval("select now() - interval '1 hour'")
    columns = {"run_at": run_at} if is_late else {}
    await insert(db, crash_count=crash_count, **columns)
    (claimed,) = await rows(db, "claim_next_job")

    options = claimed["options"]
    assert options.keys() == keys
    assert options.get("crash_count", 0) == crash_count
    if is_late:
        assert run_at == await db.fetchval(
            "select ($1::jsonb ->> 'run_at')::timestamptz", options
        )


async def test_a_nameless_worker_is_its_sessions_application_and_process(
    connect: Connect,
) -> None:
    db = await connect(server_settings={"application_name": "mailer"})
    job_id = await insert(db)
    await claim(db)

    worker = (await job(db, job_id))["claimed_by"]
    assert worker == f"mailer:{db.get_server_pid()}"


@pytest.mark.parametrize(
    "arguments",
    [
        {"queue": None},
        {"count": None},
        {"count": 0},
        {"count": -1},
        {"count": 10001},
        {"count": 2**31 - 1},
        {"count": -(2**31)},
        {"lease": timedelta(milliseconds=999)},
        {"lease": timedelta(days=1, milliseconds=1)},
        {"lease": timedelta(0)},
        {"worker": ""},
        {"worker": "x" * 513},
    ],
)
async def test_what_can_not_be_meant_is_an_invalid_argument(
    db: Connection, arguments: dict[str, Any]
) -> None:
    await insert(db)
    with refused("PW003"):
        await claim_batch(db, **arguments)
    if "count" not in arguments:
        with refused("PW003"):
            await rows(db, "claim_next_job", **arguments)


async def test_count_is_the_most_that_is_taken(db: Connection) -> None:
    await insert_many(db, 10)

    assert [len(await claim(db, 4)) for _ in range(4)] == [4, 4, 2, 0]

"""release_jobs gives back unburnt, snooze_job puts off."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from support import Connect, Connection
from support.sql.helpers import (
    Row,
    call,
    claim,
    insert,
    insert_many,
    job,
    pair,
    pairs,
    refused,
    running,
    set_clock,
    waits,
)

REASONS = ["unstarted", "shutdown", "unknown_kind"]


async def release(db: Connection, *jobs: Row, **arguments: Any) -> list[str]:
    outcomes: list[str] = await call(db, "release_jobs", **pairs(*jobs), **arguments)
    return outcomes


@pytest.mark.parametrize("reason", REASONS)
async def test_a_released_job_is_as_if_never_claimed(
    db: Connection, reason: str
) -> None:
    job_id = await insert(db, attempt=3)
    before = await job(db, job_id)
    (held,) = await claim(db)

    assert await release(db, held, reason=reason) == ["released"]
    after = await job(db, job_id)
    unlike = {"unstarted": set(), "shutdown": {"bounce_count"}}
    expected = unlike.get(reason, {"bounce_count", "run_at"})
    assert {column for column in before if before[column] != after[column]} == expected


async def test_it_is_due_again_at_once(db: Connection) -> None:
    held = await running(db)
    await release(db, held)

    (again,) = await claim(db)
    assert (again["id"], again["attempt"]) == (held["id"], 1)


async def test_the_twentieth_shutdown_counts_the_attempt_after_all(
    db: Connection,
) -> None:
    await insert(db)
    attempts = []
    for _ in range(21):
        (held,) = await claim(db)
        await release(db, held, reason="shutdown")
        row = await job(db, held["id"])
        attempts.append((row["bounce_count"], row["attempt"]))

    expected = [(n, 0) for n in range(1, 20)] + [(20, 1), (21, 2)]
    assert attempts == expected


@pytest.mark.parametrize("reason", ["unstarted", "unknown_kind"])
async def test_other_reasons_never_count_the_attempt(
    db: Connection, reason: str
) -> None:
    held = await running(db, bounce_count=50)
    await release(db, held, reason=reason)

    assert (await job(db, held["id"]))["attempt"] == 0


@pytest.mark.parametrize(
    ("bounce_count", "seconds"),
    [(0, 1), (1, 2), (5, 32), (8, 256), (9, 300), (1000, 300), (2147483647, 300)],
)
async def test_an_unknown_kind_waits_twice_as_long_each_time_up_to_five_minutes(
    db: Connection, bounce_count: int, seconds: int
) -> None:
    held = await running(db, bounce_count=bounce_count)
    async with db.transaction():
        await release(db, held, reason="unknown_kind")
        now = await call(db, "now")

    assert (await job(db, held["id"]))["run_at"] == now + timedelta(seconds=seconds)


@pytest.mark.parametrize("reason", REASONS)
async def test_one_whose_cancellation_was_asked_for_is_cancelled_instead(
    db: Connection, reason: str
) -> None:
    held = await running(db)
    await call(db, "cancel_job", job_id=held["id"])

    assert await release(db, held, reason=reason) == ["cancel_requested"]
    assert (await job(db, held["id"]))["status"] == "cancelled"


@pytest.mark.parametrize("reason", [None, "", "failed"])
async def test_an_unknown_reason_is_refused(db: Connection, reason: str | None) -> None:
    held = await running(db)

    with refused("PW003"):
        await release(db, held, reason=reason)


async def test_a_release_waits_for_whoever_has_a_row_with_nothing_in_its_hands(
    connect: Connect, db: Connection
) -> None:
    other, third = await connect(), await connect()
    await insert_many(db, 2)
    jobs = await claim(db, 2)
    await call(db, "cancel_job", job_id=jobs[0]["id"])
    transaction = db.transaction()
    await transaction.start()
    await db.execute(
        "select from pgwake.jobs_live where id = $1 for update", jobs[0]["id"]
    )

    completing = asyncio.create_task(call(other, "complete_jobs", **pairs(*jobs)))
    await waits(other, completing, db)
    releasing = asyncio.create_task(release(third, *jobs))
    await waits(third, releasing, db)
    await transaction.commit()

    assert await completing == ["completed", "completed"]
    assert await releasing == ["lease_lost", "lease_lost"]


async def test_a_snoozed_job_is_due_after_the_delay_and_unburnt(db: Connection) -> None:
    await set_clock(db, "1 day")
    held = await running(db, attempt=2)
    async with db.transaction():
        delay = timedelta(hours=1)
        outcome = await call(db, "snooze_job", **pair(held), delay=delay)
        now = await call(db, "now")

    assert outcome == "released"
    row = await job(db, held["id"])
    assert (row["status"], row["attempt"], row["bounce_count"]) == ("pending", 2, 0)
    assert row["run_at"] == now + delay
    await set_clock(db, "1 day 1 hour")
    assert [j["id"] for j in await claim(db)] == [held["id"]]


async def test_a_snooze_honours_a_cancellation_that_was_asked_for(
    db: Connection,
) -> None:
    held = await running(db)
    await call(db, "cancel_job", job_id=held["id"])

    arguments = {**pair(held), "delay": timedelta(hours=1)}
    assert await call(db, "snooze_job", **arguments) == "cancel_requested"
    assert (await job(db, held["id"]))["status"] == "cancelled"


@pytest.mark.parametrize("delay", [None, "-1 ms", "10 years 1 ms", "178000000 years"])
async def test_a_snooze_lasts_up_to_ten_years(
    db: Connection, delay: str | None
) -> None:
    held = await running(db)

    with refused("PW003"):
        await db.execute(
            "select pgwake.snooze_job($1, $2, $3::text::interval)",
            *pair(held).values(),
            delay,
        )

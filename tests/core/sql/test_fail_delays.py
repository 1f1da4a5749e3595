"""When a failed attempt is followed by the next one; see retry_delay too."""

from datetime import timedelta
from typing import Any

import pytest

from support import Connection
from support.sql.helpers import (
    Row,
    call,
    claim,
    insert_many,
    job,
    pair,
    pairs,
    refused,
    running,
    set_queue,
)


async def fail(db: Connection, held: Row, **arguments: Any) -> str:
    outcome: str = await call(db, "fail_job", **pair(held), **arguments)
    return outcome


async def test_the_next_attempt_comes_after_the_queues_backoff(db: Connection) -> None:
    base, cap = timedelta(hours=1), timedelta(hours=2)
    await set_queue(db, backoff_base=base, backoff_cap=cap)
    await insert_many(db, 60)
    for held in await claim(db, 60):
        await fail(db, held)

    delays = await db.fetch(
        "select extract(epoch from run_at - now())::float8 / 3600 from pgwake.jobs_live"
    )
    hours = sorted(hours for (hours,) in delays)
    assert -0.1 < hours[0] < 0.4  # full jitter, up to the base
    assert 0.6 < hours[-1] < 1


async def test_an_explicit_delay_is_kept_exactly(db: Connection) -> None:
    held = await running(db)
    async with db.transaction():
        await fail(db, held, retry_in=timedelta(minutes=42))
        now = await call(db, "now")

    assert (await job(db, held["id"]))["run_at"] == now + timedelta(minutes=42)


@pytest.mark.parametrize("retry_in", ["-1 ms", "10 years 1 ms", "178000000 years"])
async def test_a_delay_out_of_range_is_refused_for_one_job(
    db: Connection, retry_in: str
) -> None:
    held = await running(db)

    with refused("PW003"):
        await db.execute(
            f"select pgwake.fail_job($1, $2, retry_in => '{retry_in}')",
            *pair(held).values(),
        )


@pytest.mark.parametrize(
    ("retry_in", "stored"), [("-1 hour", "0"), ("178000000 years", "10 years")]
)
async def test_a_delay_out_of_range_is_clipped_in_a_batch(
    db: Connection, retry_in: str, stored: str
) -> None:
    held = await running(db)
    async with db.transaction():
        await db.execute(
            f"select pgwake.fail_jobs($1, $2, retry_ins => '{{{retry_in}}}')",
            *pairs(held).values(),
        )
        expected = await db.fetchval(f"select now() + interval '{stored}'")

    assert (await job(db, held["id"]))["run_at"] == expected


async def test_a_deep_attempt_with_a_long_backoff_does_not_overflow(
    db: Connection,
) -> None:
    await db.execute(
        "insert into pgwake.queues (name, backoff_base, backoff_cap)"
        " values ('default', '24:00:00', '1 year')"
    )
    held = await running(db, max_attempts=10000, attempt=5000)

    assert await fail(db, held) == "retry"

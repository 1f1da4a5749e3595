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


async def fail(connection: Connection, held: Row, **arguments: Any) -> str:
    outcome: str = await call(connection, "fail_job", **pair(held), **arguments)
    return outcome


async def test_the_next_attempt_comes_after_the_queues_backoff(
    connection: Connection,
) -> None:
    base, cap = timedelta(hours=1), timedelta(hours=2)
    await set_queue(connection, backoff_base=base, backoff_cap=cap)
    await insert_many(connection, 60)
    for held in await claim(connection, 60):
        await fail(connection, held)

    delays = await connection.fetch(
        "select extract(epoch from run_at - now())::float8 / 3600 from pgwake.jobs_live"
    )
    hours = sorted(hours for (hours,) in delays)
    assert -0.1 < hours[0] < 0.4  # full jitter, up to the base
    assert 0.6 < hours[-1] < 1


async def test_an_explicit_delay_is_kept_exactly(connection: Connection) -> None:
    held = await running(connection)
    async with connection.transaction():
        await fail(connection, held, retry_in=timedelta(minutes=42))
        now = await call(connection, "now")

    assert (await job(connection, held["id"]))["run_at"] == now + timedelta(minutes=42)


@pytest.mark.parametrize("retry_in", ["-1 ms", "10 years 1 ms", "178000000 years"])
async def test_a_delay_out_of_range_is_refused_for_one_job(
    connection: Connection, retry_in: str
) -> None:
    held = await running(connection)

    with refused("PW003"):
        await connection.execute(
            f"select pgwake.fail_job($1, $2, retry_in => '{retry_in}')",
            *pair(held).values(),
        )


@pytest.mark.parametrize(
    ("retry_in", "stored"), [("-1 hour", "0"), ("178000000 years", "10 years")]
)
async def test_a_delay_out_of_range_is_clipped_in_a_batch(
    connection: Connection, retry_in: str, stored: str
) -> None:
    held = await running(connection)
    async with connection.transaction():
        await connection.execute(
            f"select pgwake.fail_jobs($1, $2, retry_ins => '{{{retry_in}}}')",
            *pairs(held).values(),
        )
        expected = await connection.fetchval(f"select now() + interval '{stored}'")

    assert (await job(connection, held["id"]))["run_at"] == expected


async def test_a_deep_attempt_with_a_long_backoff_does_not_overflow(
    connection: Connection,
) -> None:
    await connection.execute(
        "insert into pgwake.queues (name, backoff_base, backoff_cap)"
        " values ('default', '24:00:00', '1 year')"
    )
    held = await running(connection, max_attempts=10000, attempt=5000)

    assert await fail(connection, held) == "retry"

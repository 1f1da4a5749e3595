"""What a job goes through again and again leaves no more on its row than at first."""

from datetime import timedelta
from typing import Any

import pytest

from support import Connection
from support.sql.helpers import call, claim, insert, pair, set_clock

ROUNDS = 300


async def size(connection: Connection, job_id: int) -> int:
    """Bytes of a job's row, as it would be sent and before it is compressed."""
    count: int = await connection.fetchval(
        "select octet_length(j::text) from pgwake.jobs as j where id = $1", job_id
    )
    return count


@pytest.mark.timeout(60)
async def test_a_job_that_snoozes_and_fails_for_ever_does_not_grow(
    connection: Connection,
) -> None:
    job_id = await insert(connection, max_attempts=10_000)
    arguments: dict[str, Any]
    sizes = []
    for number in range(1, ROUNDS + 1):
        await set_clock(connection, f"{number * 10} hours")
        (held,) = await claim(connection)
        if number % 3 == 0:
            error, trace = (letter * 5000 for letter in "et")
            arguments = {"error": error, "traceback": trace}
            outcome = await call(connection, "fail_job", **pair(held), **arguments)
            assert outcome == "retry"
        else:
            arguments = {"delay": timedelta(seconds=1)}
            outcome = await call(connection, "snooze_job", **pair(held), **arguments)
            assert outcome == "released"
        if number % 30 == 0:
            sizes.append(await size(connection, job_id))

    # Twenty errors are kept; the 20th came in round 60. Counts may gain a digit.
    assert sizes[0] < sizes[1]
    assert max(sizes[1:]) - min(sizes[1:]) < 100
    assert sizes[-1] < 20 * 4_300


@pytest.mark.parametrize("end", ["complete_job", "fail_job"])
async def test_an_ended_job_is_as_small_as_a_live_one_without_another_try(
    connection: Connection, end: str
) -> None:
    text = {"text": "the same again, " * 1000}
    await insert(connection, payload=text, metadata=text, max_attempts=1)
    sizes = "select pg_column_size(payload), pg_column_size(metadata) from pgwake.jobs"
    live = await connection.fetchrow(sizes)
    assert live is not None
    assert max(live) < 1000

    (held,) = await claim(connection)
    await call(connection, end, **pair(held))

    assert await connection.fetchrow(sizes) == live
    # What could not be compressed when it came is not tried again.
    tried = await connection.fetch(
        "select attrelid::regclass from pg_attribute"
        " where attname in ('payload', 'metadata') and attstorage <> 'e'"
        " and attrelid in (select relid from pg_partition_tree('pgwake.jobs')"
        " where relid not in ('pgwake.jobs'::regclass, 'pgwake.jobs_live'::regclass))"
    )
    assert tried == []

"""What a job goes through again and again leaves no more on its row than at first."""

from datetime import timedelta
from typing import Any

import pytest

from support import Connection
from support.sql.helpers import call, claim, insert, pair, set_clock

ROUNDS = 300


async def size(db: Connection, job_id: int) -> int:
    """Bytes of a job's row, as it would be sent and before it is compressed."""
    count: int = await db.fetchval(
        "select octet_length(j::text) from pgwake.jobs as j where id = $1", job_id
    )
    return count


async def test_a_job_that_snoozes_and_fails_for_ever_does_not_grow(
    db: Connection,
) -> None:
    job_id = await insert(db, max_attempts=10_000)
    arguments: dict[str, Any]
    sizes = []
    for number in range(1, ROUNDS + 1):
        await set_clock(db, f"{number * 10} hours")
        (held,) = await claim(db)
        if number % 3 == 0:
            error, trace = (letter * 5000 for letter in "et")
            arguments = {"error": error, "traceback": trace}
            outcome = await call(db, "fail_job", **pair(held), **arguments)
            assert outcome == "retry"
        else:
            arguments = {"delay": timedelta(seconds=1)}
            outcome = await call(db, "snooze_job", **pair(held), **arguments)
            assert outcome == "released"
        if number % 30 == 0:
            sizes.append(await size(db, job_id))

    # Twenty errors are kept; the 20th came in round 60. Counts may gain a digit.
    assert sizes[0] < sizes[1]
    assert max(sizes[1:]) - min(sizes[1:]) < 100
    assert sizes[-1] < 20 * 4_300


@pytest.mark.parametrize("end", ["complete_job", "fail_job"])
async def test_an_ended_job_is_as_small_as_a_live_one_without_another_try(
    db: Connection, end: str
) -> None:
    text = {"text": "the same again, " * 1000}
    await insert(db, payload=text, metadata=text, max_attempts=1)
    sizes = "select pg_column_size(payload), pg_column_size(metadata) from pgwake.jobs"
    live = await db.fetchrow(sizes)
    assert live is not None
    assert max(live) < 1000

    (held,) = await claim(db)
    await call(db, end, **pair(held))

    assert await db.fetchrow(sizes) == live
    # What could not be compressed when it came is not tried again.
    tried = await db.fetch(
        "select attrelid::regclass from pg_attribute"
        " where attname in ('payload', 'metadata') and attstorage <> 'e'"
        " and attrelid in (select relid from pg_partition_tree('pgwake.jobs')"
        " where relid not in ('pgwake.jobs'::regclass, 'pgwake.jobs_live'::regclass))"
    )
    assert tried == []


async def test_a_claimed_row_which_is_longer_stays_on_its_page(
    db: Connection,
) -> None:
    await db.execute(
        "insert into pgwake.jobs (kind, payload)"
        " select 'send_email', '{\"number\": 1}' from generate_series(1, 500)"
    )
    pages = "select id, (ctid::text::point)[0] from pgwake.jobs_live order by id"
    before = await db.fetch(pages)
    assert len(await claim(db, 500, worker="worker-7f9c4d:12345:abcdefgh")) == 500
    assert await db.fetch(pages) == before

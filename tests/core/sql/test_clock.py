"""pgwake.now(), and the leaf that follows from it."""

from datetime import UTC, datetime, timedelta

import pytest

from support import Connection
from support.sql.helpers import call, insert, job, pair, running, set_clock

DAY = timedelta(days=1)


async def test_the_clock_is_the_transactions_time(db: Connection) -> None:
    async with db.transaction():
        assert await call(db, "now") == await db.fetchval("select now()")


@pytest.mark.parametrize("offset", ["1 hour", "-1 day", "00:00:00.5", "40 days"])
async def test_a_setting_moves_it(db: Connection, offset: str) -> None:
    await set_clock(db, offset)

    assert await db.fetchval(f"select pgwake.now() = now() + interval '{offset}'")


async def test_an_empty_setting_moves_nothing(db: Connection) -> None:
    await set_clock(db, "")

    assert await db.fetchval("select pgwake.now() = now()")


async def test_other_sessions_keep_their_own_clock(
    db: Connection, other: Connection
) -> None:
    await set_clock(db, "1 hour")

    assert await other.fetchval("select pgwake.now() = now()")


@pytest.mark.parametrize("path", ["pgwake, pg_catalog", "pgwake", ""])
async def test_the_callers_search_path_can_not_mislead_it(
    db: Connection, path: str
) -> None:
    await db.execute("select set_config('search_path', $1, false)", path)

    assert await insert(db)


async def test_a_plain_insert_reads_it_too(db: Connection) -> None:
    await set_clock(db, "2 hours")
    row = await job(db, await insert(db))

    ahead = row["created_at"] - await db.fetchval("select now()")
    assert timedelta(hours=1, minutes=59) < ahead <= timedelta(hours=2)
    assert row["run_at"] == row["created_at"]


@pytest.mark.parametrize(
    ("day", "width", "slot"),
    [
        *((0, 1, 0), (31, 1, 31), (32, 1, 0), (20000, 1, 0), (20001, 1, 1)),
        *((20001, 2, 16), (20002, 2, 17), (20000, 7, 9), (366 * 33, 366, 1)),
    ],
)
async def test_the_leaf_is_the_utc_day_by_width_modulo_32(
    db: Connection, day: int, width: int, slot: int
) -> None:
    await db.execute("update pgwake.installation set width = $1", width)
    await db.execute("set timezone = 'Pacific/Kiritimati'")
    at = datetime.fromtimestamp(0, UTC) + day * DAY

    for instant in (at, at + DAY - timedelta(microseconds=1)):
        assert await call(db, "finished_slot", at=instant) == slot


async def test_jobs_that_end_on_other_days_lie_in_other_leaves(db: Connection) -> None:
    slots = []
    for day in range(33):
        await set_clock(db, f"{day} days")
        held = await running(db)
        await call(db, "complete_job", **pair(held))
        slots.append((await job(db, held["id"]))["finished_slot"])

    assert len(set(slots[:32])) == 32
    assert slots[0] == slots[32]


async def test_it_makes_no_look_at_few_jobs_worth_parallel_workers(
    db: Connection,
) -> None:
    plan = await db.fetch(
        "explain select queue, count(*) filter (where run_at <= pgwake.now()),"
        " count(*) filter (where run_at > pgwake.now()) from pgwake.jobs group by 1"
    )
    assert not any("Gather" in line for (line,) in plan)

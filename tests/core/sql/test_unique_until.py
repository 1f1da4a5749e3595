"""unique_until: unique keys that stay taken until a time, by ended jobs too."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from support import Connection
from support.sql.helpers import (
    blocking,
    call,
    claim,
    insert,
    job,
    refused,
    rolled_back,
    running,
    set_clock,
    status,
    waits,
)
from support.sql.helpers import pair as lease

PERIOD = "unique_periods_pkey"
PERIODS = "select count(*) from pgwake.unique_periods"
END: dict[str, Callable[[Connection, int], Awaitable[Any]]] = {
    "completed": lambda c, i: end(c, i, "complete_job"),
    "failed": lambda c, i: end(c, i, "fail_job", retryable=False),
    "cancelled": lambda c, i: call(c, "cancel_job", job_id=i),
}
FREE = {
    "time": "set pgwake.clock_offset = '61 minutes'",
    "delete": "delete from pgwake.jobs",
    "purge": "select pgwake.purge('completed', before => 'infinity')",
    "truncate": "truncate pgwake.jobs",
    "by hand": "delete from pgwake.unique_periods",
}


async def end(db: Connection, job_id: int, function: str, **arguments: Any) -> None:
    (held,) = await claim(db)
    assert held["id"] == job_id
    await call(db, function, **lease(held), **arguments)


async def until(db: Connection, minutes: float = 60) -> datetime:
    at: datetime = await db.fetchval(
        "select pgwake.now() + $1::interval", timedelta(minutes=minutes)
    )
    return at


async def plain(db: Connection, **columns: Any) -> int:
    given = {"unique_key": "k", "unique_until": await until(db), **columns}
    return await insert(db, "a", **given)


async def ended(db: Connection) -> int:
    job_id = await plain(db)
    await END["completed"](db, job_id)
    return job_id


async def many(db: Connection, *jobs: dict[str, Any], **fields: Any) -> list[int]:
    given = {"kind": "a", "unique_key": "k", "unique_until": str(await until(db))}
    ids: list[int] = await call(
        db, "enqueue_many", jobs=[given | fields | job for job in jobs or [{}]]
    )
    return ids


@pytest.mark.parametrize("state", END)
async def test_an_ended_job_keeps_its_key(db: Connection, state: str) -> None:
    job_id = await plain(db)
    await END[state](db, job_id)
    assert await status(db, job_id) == state
    assert "key stays taken until" in await call(db, "explain_job", job_id=job_id)

    with refused("PW005", by=PERIOD) as caught:
        await plain(db)
    assert caught.value.detail == f"job {job_id}"
    with refused("PW005", by="") as caught:
        await many(db, on_conflict="raise")
    assert caught.value.detail == f"job {job_id}"
    for on_conflict in ("return", "replace"):
        assert await many(db, on_conflict=on_conflict) == [job_id]
    await plain(db, unique_key="other")
    # who does not ask for it sees live jobs only
    assert await insert(db, "a", unique_key="k") > job_id


@pytest.mark.parametrize("way", FREE)
async def test_what_frees_the_key(db: Connection, way: str) -> None:
    job_id = await ended(db)
    await db.execute(FREE[way])
    assert await plain(db) > job_id


async def test_retention_takes_what_is_over_and_frees_nothing(db: Connection) -> None:
    await plain(db, unique_until=await until(db, 60 * 24 * 30))
    await plain(db, unique_key="short")
    await call(db, "cancel_jobs", kind="a")
    await set_clock(db, "8 days")
    await call(db, "maintain", step="retention")

    assert await db.fetchval("select count(*) from pgwake.jobs") == 0
    assert await db.fetchval(PERIODS) == 1
    with refused("PW005", by=PERIOD):
        await plain(db)


async def test_a_failed_transaction_takes_nothing(db: Connection) -> None:
    async with rolled_back(db):
        await plain(db)
    await plain(db)


async def test_a_live_job_of_the_period_is_found_or_replaced(db: Connection) -> None:
    (job_id,) = await many(db)
    assert await many(db, payload={"n": 1}) == [job_id]
    later = await until(db, 90)
    replacing = {"on_conflict": "replace", "payload": {"n": 2}}
    assert await many(db, **replacing, unique_until=str(later)) == [job_id]
    row = await job(db, job_id)
    assert (row["payload"], row["unique_until"]) == ({"n": 2}, later)
    assert await db.fetchval("select until from pgwake.unique_periods") == later

    # one that has begun is not
    await claim(db)
    assert await many(db, **replacing) == [job_id]
    # nor has it the key alone when its time is over: as without a period
    await set_clock(db, "91 minutes")
    assert await many(db) == [job_id]
    assert await db.fetchval(PERIODS) == 1
    (beside,) = await many(db, **replacing)
    assert beside > job_id
    assert await db.fetchval("select job_id from pgwake.unique_periods") == beside


async def test_an_array_names_keys_twice_and_taken_ones(db: Connection) -> None:
    old = await ended(db)
    ids = await many(
        db,
        {"unique_key": "n"},
        {},
        {"unique_key": "n", "payload": {"n": 2}},
        {"unique_key": None, "unique_until": None},
    )
    assert (ids[1], ids[0]) == (old, ids[2])
    assert (await job(db, ids[0]))["payload"] == {}
    assert await status(db, ids[3]) == "pending"
    assert await db.fetchval(PERIODS) == 2


@pytest.mark.parametrize("columns", [{"unique_key": None}, {"unique_until": "inf"}])
async def test_what_can_not_be_meant_is_refused(
    db: Connection, columns: dict[str, Any]
) -> None:
    with refused("PW003"):
        if columns.get("unique_until"):
            await many(db, unique_until="infinity")
        else:
            await plain(db, **columns)
    with refused("PW003"):
        await many(db, unique_key=None)


async def test_ended_jobs_that_are_copied_take_none(db: Connection) -> None:
    await db.execute(
        "insert into pgwake.jobs (kind, status, finished_at, unique_key, unique_until)"
        " select 'a', 'failed', now(), 'k', now() + interval '1 hour'"
        " from generate_series(1, 2)"
    )
    assert await db.fetchval(PERIODS) == 0


@pytest.mark.parametrize("on_conflict", ["return", "replace", "raise", "plain"])
async def test_a_job_that_comes_and_ends_while_another_waits(
    db: Connection, other: Connection, on_conflict: str
) -> None:
    """Whoever waits has a snapshot in which the key is free."""

    async def follow() -> list[int]:
        if on_conflict == "plain":
            return [await plain(other)]
        return await many(other, on_conflict=on_conflict)

    async with blocking(db, other, follow()) as task:
        job_id = await plain(db)
        await call(db, "cancel_job", job_id=job_id)

    if on_conflict in {"plain", "raise"}:
        with refused("PW005", by=PERIOD if on_conflict == "plain" else "") as caught:
            await task
        assert caught.value.detail == f"job {job_id}"
    else:
        assert await task == [job_id]
    assert await db.fetchval("select count(*) from pgwake.jobs") == 1


async def test_a_period_that_is_over_goes_to_one_of_two(
    db: Connection, other: Connection
) -> None:
    await ended(db)
    for connection in (db, other):
        await set_clock(connection, "61 minutes")
    async with blocking(db, other, many(other)) as task:
        (job_id,) = await many(db)
        await call(db, "cancel_job", job_id=job_id)
    assert await task == [job_id]


@pytest.mark.parametrize("free", ["delete", "purge"])
async def test_who_deletes_a_job_does_not_wait_for_who_takes_its_key(
    db: Connection, other: Connection, free: str
) -> None:
    await ended(db)
    for connection in (db, other):
        await set_clock(connection, "61 minutes")
    await other.execute("set lock_timeout = '1s'")
    async with db.transaction():
        (job_id,) = await many(db)
        await other.execute(FREE[free])
    assert await db.fetchval("select job_id from pgwake.unique_periods") == job_id


async def test_who_waits_has_the_key_if_the_first_rolls_back(
    db: Connection, other: Connection
) -> None:
    async with rolled_back(db):
        first = await plain(db)
        task = asyncio.create_task(plain(other))
        await waits(other, task, db)
    assert await task != first


@pytest.mark.parametrize("is_many", [False, True])
async def test_what_repeatable_read_can_not_see_is_a_serialization_failure(
    db: Connection, other: Connection, is_many: bool
) -> None:
    async with other.transaction(isolation="repeatable_read"):
        await other.fetchval("select 1 from pgwake.jobs")
        await ended(db)
        with refused("40001"):
            await (many(other) if is_many else plain(other))
    async with other.transaction(isolation="repeatable_read"):
        with refused("PW005", by=PERIOD):
            await plain(other)


async def test_a_replaced_job_that_begins_meanwhile_is_not_doubled(
    db: Connection, other: Connection
) -> None:
    (job_id,) = await many(db)
    async with blocking(db, other, many(other, on_conflict="replace")) as task:
        await claim(db)
    assert await task == [job_id]
    assert await db.fetchval("select count(*) from pgwake.jobs") == 1


async def test_a_retry_has_its_own_key(db: Connection) -> None:
    job_id = await plain(db)
    await END["failed"](db, job_id)
    await call(db, "retry_job", job_id=job_id)
    assert await status(db, job_id) == "pending"
    assert await many(db) == [job_id]


async def test_jobs_without_it_do_not_read_the_table(db: Connection) -> None:
    read = (
        "select coalesce(seq_scan, 0) + coalesce(idx_scan, 0)"
        " from pg_stat_xact_user_tables where relname = 'unique_periods'"
    )
    async with db.transaction():
        before = await db.fetchval(read)
        await insert(db, unique_key="k")
        await call(db, "enqueue", kind="a", unique_key="u")
        await many(db, {"unique_until": None})
        await running(db, kind="b", queue="q")
        assert await db.fetchval(read) == before

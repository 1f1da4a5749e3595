from datetime import timedelta
from typing import Any

import pytest

from support import Connect, Connection
from support.sql.helpers import (
    Row,
    call,
    claim,
    insert,
    job,
    pair,
    pairs,
    refused,
    rows,
    running,
    set_clock,
    set_kind,
    set_queue,
    status,
    sweep,
)


async def extend(db: Connection, *jobs: Row, **arguments: Any) -> list[str]:
    outcomes: list[str] = await call(db, "extend_leases", **pairs(*jobs), **arguments)
    return outcomes


async def test_a_lease_runs_anew_from_now(db: Connection) -> None:
    held = await running(db)
    await set_clock(db, "2 minutes")
    async with db.transaction():
        assert await extend(db, held) == ["extended"]
        now = await call(db, "now")

    expires_at = (await job(db, held["id"]))["lease_expires_at"]
    assert expires_at == now + timedelta(minutes=5)


async def test_its_length_is_the_callers_or_the_queues(db: Connection) -> None:
    await set_queue(db, lease=timedelta(minutes=7))
    held = await running(db)
    await set_clock(db, "1 minute")

    async with db.transaction():
        now = await call(db, "now")
        await extend(db, held)
        by_queue = (await job(db, held["id"]))["lease_expires_at"] - now
        await extend(db, held, lease=timedelta(minutes=9))
        by_caller = (await job(db, held["id"]))["lease_expires_at"] - now
    assert (by_queue, by_caller) == (timedelta(minutes=7), timedelta(minutes=9))


async def test_without_a_length_it_is_the_kinds(db: Connection) -> None:
    await set_kind(db, declared_lease=timedelta(hours=1))
    held = await running(db)
    await set_clock(db, "58 minutes")
    async with db.transaction():
        assert await extend(db, held) == ["extended"]
        now = await call(db, "now")
    expires_at = (await job(db, held["id"]))["lease_expires_at"]
    assert expires_at == now + timedelta(hours=1)


async def test_in_an_old_transaction_a_lease_counts_from_the_call(
    db: Connection,
) -> None:
    lease = timedelta(seconds=2)
    await insert(db)
    async with db.transaction():
        began_at = await db.fetchval("select now() from pg_sleep(1.5)")
        (held,) = await claim(db, lease=lease)
        claimed = (await job(db, held["id"]))["lease_expires_at"]
        assert claimed >= began_at + timedelta(seconds=1.5) + lease
        await db.execute("select pg_sleep(0.1)")
        assert await extend(db, held, lease=lease) == ["extended"]
        extended = (await job(db, held["id"]))["lease_expires_at"]
        assert extended >= claimed + timedelta(seconds=0.1)


async def test_a_lease_is_never_shortened(db: Connection) -> None:
    held = await running(db)
    before = await job(db, held["id"])

    assert await extend(db, held, lease=timedelta(seconds=1)) == ["extended"]
    assert await job(db, held["id"]) == before


async def test_nothing_else_of_the_job_changes(db: Connection) -> None:
    held = await running(db)
    before = await job(db, held["id"])
    await set_clock(db, "1 minute")
    await extend(db, held)

    after = await job(db, held["id"])
    changed = {column for column in before if before[column] != after[column]}
    assert changed == {"lease_expires_at"}


async def test_one_whose_cancellation_is_asked_for_is_told_and_keeps_its_lease(
    db: Connection,
) -> None:
    held = await running(db)
    await call(db, "cancel_job", job_id=held["id"])
    await set_clock(db, "1 minute")

    assert await extend(db, held) == ["cancel_requested"]
    expires_at = (await job(db, held["id"]))["lease_expires_at"]
    assert expires_at > held["lease_expires_at"]


@pytest.mark.parametrize("end", ["complete_job", "fail_job"])
async def test_one_that_has_ended_is_lost(db: Connection, end: str) -> None:
    held = await running(db, max_attempts=1)
    await call(db, end, **pair(held))

    assert await extend(db, held) == ["lease_lost"]


@pytest.mark.parametrize("end", ["complete_job", "fail_job"])
async def test_one_that_is_being_ended_is_not_waited_for(
    db: Connection, other: Connection, end: str
) -> None:
    held, beside = await running(db), await running(db)
    await set_clock(other, "1 minute")
    async with db.transaction():
        await call(db, end, **pair(held))
        outcomes = await extend(other, held, beside)

    assert outcomes == ["extended", "extended"]
    after = await job(db, held["id"])
    assert after["lease_expires_at"] is None
    after = await job(db, beside["id"])
    assert after["lease_expires_at"] > beside["lease_expires_at"]


async def test_a_renewal_that_finds_the_row_locked_counts_when_it_is_free(
    db: Connection, connect: Connect
) -> None:
    writer = await connect()
    held = await running(db)
    async with writer.transaction():  # longer than the lease
        await call(writer, "record_step", **pair(held), name="a")
        await set_clock(db, "4 minutes")
        assert await extend(db, held) == ["extended"]
        assert await sweep(db, "8 minutes") == 0
    crashed = await insert(db)
    await rows(db, "claim_next_job", worker="w1", lease=timedelta(seconds=1))
    assert await sweep(db, "8.5 minutes") == 1
    assert await status(db, crashed) == "pending"
    await db.execute("delete from pgwake.jobs where id = $1", crashed)
    assert (await job(db, held["id"]))["lease_id"] == held["lease_id"]
    assert await sweep(db, "10 minutes") == 1

    (again,) = await claim(db)  # what was noted holds for the lease before alone
    assert await sweep(db, "20 minutes") == 1
    await rows(db, "maintain", step="retention")
    assert await db.fetchval("select count(*) from pgwake.missed_renewals") == 0
    assert await extend(db, held) == await extend(db, again) == ["lease_lost"]


@pytest.mark.parametrize(
    "lease", [timedelta(milliseconds=999), timedelta(days=1, milliseconds=1)]
)
async def test_a_lease_lasts_from_a_second_to_a_day(
    db: Connection, lease: timedelta
) -> None:
    held = await running(db)

    with refused("PW003"):
        await extend(db, held, lease=lease)

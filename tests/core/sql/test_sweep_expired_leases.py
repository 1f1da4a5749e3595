from datetime import timedelta

import pytest

from support import Connect, Connection
from support.sql.helpers import (
    blocking,
    call,
    claim,
    insert,
    insert_many,
    job,
    pair,
    pairs,
    put_off_sweep,
    rows,
    running,
    set_clock,
    status,
    sweep,
)


async def test_a_job_whose_lease_ran_out_goes_back_unburnt(db: Connection) -> None:
    held = await running(db)
    assert await sweep(db, "6 minutes") == 1

    row = await job(db, held["id"])
    assert (row["status"], row["attempt"], row["crash_count"]) == ("pending", 0, 1)


@pytest.mark.parametrize("offset", ["0", "4 minutes"])
async def test_a_lease_that_still_runs_is_left_alone(
    db: Connection, offset: str
) -> None:
    held = await running(db)

    assert await sweep(db, offset) == 0
    assert await status(db, held["id"]) == "running"


async def test_an_empty_sweep_finds_nothing(db: Connection) -> None:
    await insert(db)

    assert await rows(db, "sweep_expired_leases") == []


async def test_it_tells_how_many_by_queue_and_kind(db: Connection) -> None:
    for queue, kind, count in [("q1", "a", 2), ("q1", "b", 1), ("q2", "a", 3)]:
        for _ in range(count):
            await insert(db, kind, queue=queue)
        await claim(db, 10, queue)
    await set_clock(db, "1 hour")

    swept = await rows(db, "sweep_expired_leases")
    assert sorted(tuple(row.values()) for row in swept) == [
        ("q1", "a", 2, 0, 0),
        ("q1", "b", 1, 0, 0),
        ("q2", "a", 3, 0, 0),
    ]


async def test_it_finds_the_jobs_of_every_worker_and_queue(db: Connection) -> None:
    names = ["a", "b", "\N{ELEPHANT}", " ", "Z", "\x01", "x" * 512]
    for name in names:
        await insert(db, queue=name[:128])
        await claim(db, queue=name[:128], worker=name)

    assert await sweep(db, "1 hour") == len(names)


async def test_it_needs_no_registry_of_workers(db: Connection) -> None:
    held = await running(db)
    await db.execute("delete from pgwake.queues")

    assert await sweep(db, "1 hour") == 1
    assert await status(db, held["id"]) == "pending"


@pytest.mark.parametrize(
    ("max_jobs", "expected"), [(0, 0), (1, 1), (3, 3), (5, 5), (6, 6), (9, 6)]
)
async def test_it_takes_at_most_so_many(
    db: Connection, max_jobs: int, expected: int
) -> None:
    for worker in ("w1", "w2", "w3"):
        await insert_many(db, 2)
        await claim(db, 2, worker=worker)
    await set_clock(db, "1 hour")

    swept = await rows(db, "sweep_expired_leases", max_jobs=max_jobs)
    assert sum(row["job_count"] for row in swept) == expected


async def test_each_job_is_judged_by_its_own_lease(db: Connection) -> None:
    short, long = await insert(db), await insert(db)
    await claim(db, worker="w1", lease=timedelta(seconds=1))
    await claim(db, worker="w1", lease=timedelta(hours=2))

    assert await sweep(db, "1 hour") == 1
    assert await status(db, short) == "pending"
    assert await status(db, long) == "running"


async def test_a_job_that_is_being_completed_is_never_revived(
    db: Connection, other: Connection
) -> None:
    held = await running(db)
    async with db.transaction():
        await call(db, "complete_job", **pair(held))
        assert await sweep(other, "1 hour") == 0
    assert await sweep(other) == 0

    row = await job(db, held["id"])
    assert (row["status"], row["crash_count"], row["errors"]) == ("completed", 0, None)


@pytest.mark.parametrize("end", ["complete_jobs", "fail_jobs", "release_jobs"])
async def test_an_end_that_comes_during_the_sweep_is_refused(
    db: Connection, other: Connection, end: str
) -> None:
    held = await running(db)
    async with blocking(db, other, call(other, end, **pairs(held))) as task:
        assert await sweep(db, "1 hour") == 1

    assert await task == ["lease_lost"]
    row = await job(db, held["id"])
    assert (row["status"], row["crash_count"]) == ("pending", 1)


async def test_a_renewal_that_comes_during_the_sweep_does_not_wait(
    db: Connection, other: Connection
) -> None:
    held = await running(db)
    async with db.transaction():
        assert await sweep(db, "1 hour") == 1
        assert await call(other, "extend_leases", **pairs(held)) == ["extended"]

    assert await call(other, "extend_leases", **pairs(held)) == ["lease_lost"]
    assert await status(db, held["id"]) == "pending"


async def test_two_sweepers_share_the_work_and_count_each_crash_once(
    db: Connection, other: Connection
) -> None:
    await insert_many(db, 10)
    held = await claim(db, 10)
    async with db.transaction():
        await set_clock(db, "1 hour")
        first = await rows(db, "sweep_expired_leases", max_jobs=4)
        await call(other, "complete_job", **pair(held[9]))  # in between
        assert await sweep(other, "1 hour") == 5
    assert [row["job_count"] for row in first] == [4]

    counts = "select status, crash_count, count(*) from pgwake.jobs group by 1, 2"
    assert sorted(tuple(row) for row in await db.fetch(counts)) == [
        ("completed", 0, 1),
        ("pending", 1, 9),
    ]


async def test_a_job_that_can_not_be_moved_does_not_stop_the_others(
    db: Connection,
) -> None:
    await insert(db, "bad", crash_count=4)
    await insert(db, "good", crash_count=4)
    await insert(db, "good")
    warnings: list[str] = []
    db.add_log_listener(lambda _, message: warnings.append(str(message)))
    await db.execute("""
        create function refuse() returns trigger language plpgsql as $$
        begin raise exception 'a hook of the user''s'; end $$;
        create trigger refuse before insert on pgwake.jobs_failed
        for each row when (new.kind = 'bad') execute function refuse();
    """)
    for _ in range(3):
        await rows(db, "claim_next_job", worker="w1")

    assert await sweep(db, "1 hour") == 2
    states = "select kind, status from pgwake.jobs order by id"
    assert [tuple(row) for row in await db.fetch(states)] == [
        ("bad", "running"),
        ("good", "failed"),
        ("good", "pending"),
    ]
    assert ["job 1 can not be given back" in message for message in warnings] == [True]


async def test_a_live_job_of_the_same_key_can_not_wedge_the_sweep(
    db: Connection,
) -> None:
    await insert(db, "a", unique_key="k")
    await insert_many(db, 48)
    await claim(db, 49)
    again = await call(db, "enqueue", kind="a", unique_key="k", on_conflict="replace")

    assert await sweep(db, "1 hour") == 49
    running = "select count(*) from pgwake.jobs where status = 'running'"
    assert await db.fetchval(running) == 0
    assert await status(db, again) == "pending"


@pytest.mark.own_database
async def test_a_sweep_that_waded_through_dead_entries_is_not_repeated_at_once(
    connect: Connect, db: Connection
) -> None:
    holder = await connect()
    async with holder.transaction(isolation="repeatable_read"):
        await holder.fetchval("select pg_current_xact_id()::text")
        await insert_many(db, 6001)
        held = await claim(db, 6000, worker="w1")
        await call(db, "complete_jobs", **pairs(*held))
        assert await sweep(db) == 0
        await put_off_sweep(db)
        await claim(db, 1, worker="w2")
        assert await sweep(db, "1 hour") == 0
        assert await sweep(await connect(), "1 hour") == 1


@pytest.mark.parametrize("sweep_at", ["", "2000-01-01 00:00+00", "9000-01-01 00:00+00"])
async def test_a_sweep_is_never_put_off_for_more_than_a_minute(
    db: Connection, sweep_at: str
) -> None:
    await running(db)
    await db.execute("select set_config('pgwake.sweep_at', $1, false)", sweep_at)

    assert await sweep(db, "1 hour") == 1
    still = await db.fetchval("select current_setting('pgwake.sweep_at')")
    assert still == sweep_at

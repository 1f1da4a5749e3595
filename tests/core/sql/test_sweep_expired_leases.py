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
    rows,
    running,
    set_clock,
    status,
    sweep,
)


async def test_a_job_whose_lease_ran_out_goes_back_unburnt(
    connection: Connection,
) -> None:
    held = await running(connection)
    assert await sweep(connection, "6 minutes") == 1

    row = await job(connection, held["id"])
    assert (row["status"], row["attempt"], row["crash_count"]) == ("pending", 0, 1)


@pytest.mark.parametrize("offset", ["0", "4 minutes 59 seconds"])
async def test_a_lease_that_still_runs_is_left_alone(
    connection: Connection, offset: str
) -> None:
    held = await running(connection)

    assert await sweep(connection, offset) == 0
    assert await status(connection, held["id"]) == "running"


async def test_an_empty_sweep_finds_nothing(connection: Connection) -> None:
    await insert(connection)

    assert await rows(connection, "sweep_expired_leases") == []


async def test_it_tells_how_many_by_queue_and_kind(connection: Connection) -> None:
    for queue, kind, count in [("q1", "a", 2), ("q1", "b", 1), ("q2", "a", 3)]:
        for _ in range(count):
            await insert(connection, kind, queue=queue)
        await claim(connection, 10, queue)
    await set_clock(connection, "1 hour")

    swept = await rows(connection, "sweep_expired_leases")
    assert sorted(tuple(row.values()) for row in swept) == [
        ("q1", "a", 2, 0, 0),
        ("q1", "b", 1, 0, 0),
        ("q2", "a", 3, 0, 0),
    ]


async def test_it_finds_the_jobs_of_every_worker_and_queue(
    connection: Connection,
) -> None:
    names = ["a", "b", "\N{ELEPHANT}", " ", "Z", "\x01", "x" * 512]
    for name in names:
        await insert(connection, queue=name[:128])
        await claim(connection, queue=name[:128], worker=name)

    assert await sweep(connection, "1 hour") == len(names)


async def test_it_needs_no_registry_of_workers(connection: Connection) -> None:
    held = await running(connection)
    await connection.execute("delete from pgwake.queues")

    assert await sweep(connection, "1 hour") == 1
    assert await status(connection, held["id"]) == "pending"


@pytest.mark.parametrize(
    ("max_jobs", "expected"), [(0, 0), (1, 1), (3, 3), (5, 5), (6, 6), (9, 6)]
)
async def test_it_takes_at_most_so_many(
    connection: Connection, max_jobs: int, expected: int
) -> None:
    for worker in ("w1", "w2", "w3"):
        await insert_many(connection, 2)
        await claim(connection, 2, worker=worker)
    await set_clock(connection, "1 hour")

    swept = await rows(connection, "sweep_expired_leases", max_jobs=max_jobs)
    assert sum(row["job_count"] for row in swept) == expected


async def test_each_job_is_judged_by_its_own_lease(connection: Connection) -> None:
    short, long = await insert(connection), await insert(connection)
    await claim(connection, worker="w1", lease=timedelta(seconds=1))
    await claim(connection, worker="w1", lease=timedelta(hours=2))

    assert await sweep(connection, "1 hour") == 1
    assert await status(connection, short) == "pending"
    assert await status(connection, long) == "running"


async def test_a_job_that_is_being_completed_is_never_revived(
    connection: Connection, other: Connection
) -> None:
    held = await running(connection)
    async with connection.transaction():
        await call(connection, "complete_job", **pair(held))
        assert await sweep(other, "1 hour") == 0
    assert await sweep(other) == 0

    row = await job(connection, held["id"])
    assert (row["status"], row["crash_count"], row["errors"]) == ("completed", 0, None)


@pytest.mark.parametrize("end", ["complete_jobs", "fail_jobs", "release_jobs"])
async def test_an_end_that_comes_during_the_sweep_is_refused(
    connection: Connection, other: Connection, end: str
) -> None:
    held = await running(connection)
    async with blocking(connection, other, call(other, end, **pairs(held))) as task:
        assert await sweep(connection, "1 hour") == 1

    assert await task == ["lease_lost"]
    row = await job(connection, held["id"])
    assert (row["status"], row["crash_count"]) == ("pending", 1)


async def test_a_renewal_that_comes_during_the_sweep_does_not_wait(
    connection: Connection, other: Connection
) -> None:
    held = await running(connection)
    async with connection.transaction():
        assert await sweep(connection, "1 hour") == 1
        assert await call(other, "extend_leases", **pairs(held)) == ["extended"]

    assert await call(other, "extend_leases", **pairs(held)) == ["lease_lost"]
    assert await status(connection, held["id"]) == "pending"


async def test_two_sweepers_share_the_work_and_count_each_crash_once(
    connection: Connection, other: Connection
) -> None:
    await insert_many(connection, 10)
    held = await claim(connection, 10)
    async with connection.transaction():
        await set_clock(connection, "1 hour")
        first = await rows(connection, "sweep_expired_leases", max_jobs=4)
        await call(other, "complete_job", **pair(held[9]))  # in between
        assert await sweep(other, "1 hour") == 5
    assert [row["job_count"] for row in first] == [4]

    counts = "select status, crash_count, count(*) from pgwake.jobs group by 1, 2"
    assert sorted(tuple(row) for row in await connection.fetch(counts)) == [
        ("completed", 0, 1),
        ("pending", 1, 9),
    ]


async def test_a_job_that_can_not_be_moved_does_not_stop_the_others(
    connection: Connection,
) -> None:
    await insert(connection, "bad", crash_count=4)
    await insert(connection, "good", crash_count=4)
    await insert(connection, "good")
    warnings: list[str] = []
    connection.add_log_listener(lambda _, message: warnings.append(str(message)))
    await connection.execute("""
        create function refuse() returns trigger language plpgsql as $$
        begin raise exception 'a hook of the user''s'; end $$;
        create trigger refuse before insert on pgwake.jobs_failed
        for each row when (new.kind = 'bad') execute function refuse();
    """)
    for _ in range(3):
        await rows(connection, "claim_next_job", worker="w1")

    assert await sweep(connection, "1 hour") == 2
    states = "select kind, status from pgwake.jobs order by id"
    assert [tuple(row) for row in await connection.fetch(states)] == [
        ("bad", "running"),
        ("good", "failed"),
        ("good", "pending"),
    ]
    assert ["job 1 can not be given back" in message for message in warnings] == [True]


async def test_a_live_job_of_the_same_key_can_not_wedge_the_sweep(
    connection: Connection,
) -> None:
    await insert(connection, "a", unique_key="k")
    await insert_many(connection, 48)
    await claim(connection, 49)
    again = await call(
        connection, "enqueue", kind="a", unique_key="k", on_conflict="replace"
    )

    assert await sweep(connection, "1 hour") == 49
    running = "select count(*) from pgwake.jobs where status = 'running'"
    assert await connection.fetchval(running) == 0
    assert await status(connection, again) == "pending"


@pytest.mark.own_database
async def test_a_sweep_that_waded_through_dead_entries_is_not_repeated_at_once(
    connect: Connect, connection: Connection
) -> None:
    holder = await connect()
    async with holder.transaction(isolation="repeatable_read"):
        await holder.fetchval("select pg_current_xact_id()::text")
        await insert_many(connection, 6001)
        held = await claim(connection, 6000, worker="w1")
        await call(connection, "complete_jobs", **pairs(*held))
        assert await sweep(connection) == 0
        await claim(connection, 1, worker="w2")
        assert await sweep(connection, "1 hour") == 0
        assert await sweep(await connect(), "1 hour") == 1


@pytest.mark.parametrize("sweep_at", ["", "2000-01-01 00:00+00", "9000-01-01 00:00+00"])
async def test_a_sweep_is_never_put_off_for_more_than_a_minute(
    connection: Connection, sweep_at: str
) -> None:
    await running(connection)
    await connection.execute(
        "select set_config('pgwake.sweep_at', $1, false)", sweep_at
    )

    assert await sweep(connection, "1 hour") == 1
    still = await connection.fetchval("select current_setting('pgwake.sweep_at')")
    assert still == sweep_at

from datetime import timedelta
from typing import Any

import pytest

from support import OWNER, Connect, Connection
from support.sql.helpers import (
    Row,
    call,
    claim,
    insert,
    pair,
    rows,
    set_clock,
    set_queue,
)

MEANWHILE = timedelta(seconds=30)  # that a test may take


async def metrics(db: Connection) -> tuple[Row, dict[str, Row]]:
    """The database's row, and each queue's."""
    database, *queues = await rows(db, "get_metrics")
    assert database["queue"] is None
    return database, {row["queue"]: row for row in queues}


async def database(db: Connection, column: str) -> Any:
    return (await metrics(db))[0][column]


async def report(db: Connection, worker: str, *queues: str) -> None:
    await call(
        db,
        "report_worker",
        worker=worker,
        host="h",
        pid=1,
        queues=list(queues),
        kinds=[],
    )


async def test_without_queues_there_is_only_the_row_of_the_database(
    db: Connection,
) -> None:
    of_database, queues = await metrics(db)

    assert queues == {}
    assert of_database["worker_count"] == 0
    assert of_database["schedule_lag"] == timedelta(0)
    assert of_database["notification_queue_usage"] < 1


async def test_attempts_that_are_to_be_retried_are_counted(db: Connection) -> None:
    for queue, max_attempts in (("a", 3), ("a", 3), ("b", 1)):
        await insert(db, queue=queue, max_attempts=max_attempts)
        (held,) = await claim(db, 1, queue)
        await call(db, "fail_job", **pair(held))
    for _ in range(2):
        retries = [tuple(row.values()) for row in await rows(db, "count_retries")]
        assert sorted(retries) == [("a", 2), ("b", 0)]
        await call(db, "fold_counts")


async def test_a_queue_is_counted_as_in_its_statistics(db: Connection) -> None:
    for queue in ("a", "b"):
        for _ in range(3):
            await insert(db, queue=queue)
        await claim(db, 1, queue)

    _, queues = await metrics(db)
    for row in await rows(db, "get_queue_stats"):
        counted = queues[row["queue"]]
        shared = counted.keys() & row.keys() - {"oldest_pending_age"}
        assert len(shared) == 11
        assert {name: counted[name] for name in shared} == {
            name: row[name] for name in shared
        }
        assert counted["oldest_pending_age"] <= row["oldest_pending_age"]


async def test_live_workers_are_counted_with_each_queue_that_they_report(
    db: Connection,
) -> None:
    await report(db, "gone", "mail", "slow")
    await set_clock(db, "31 seconds")
    await report(db, "w1", "mail", "mail", "never used")
    await report(db, "w2", "mail")
    await insert(db, queue="slow")

    of_database, queues = await metrics(db)
    assert {name: row["worker_count"] for name, row in queues.items()} == {
        "mail": 2,
        "never used": 1,
        "slow": 0,
    }
    assert of_database["worker_count"] == 2


async def test_it_says_which_queues_are_paused(db: Connection) -> None:
    for queue in ("paused", "over", "other"):
        await set_queue(db, queue)
    await call(db, "pause_queue", queue="paused")
    await call(db, "pause_queue", queue="over")
    await call(db, "resume_queue", queue="over")

    _, queues = await metrics(db)
    assert [name for name, row in queues.items() if row["is_paused"]] == ["paused"]


async def test_the_lag_is_that_of_the_schedule_that_should_have_fired_longest_ago(
    db: Connection,
) -> None:
    for name, every in (("a", "1 hour"), ("b", "2 hours"), ("paused", "1 minute")):
        await db.execute(
            "select pgwake.schedule($1, every => $2::text::interval, kind => 'noop')",
            *(name, every),
        )
    await db.execute(
        "update pgwake.schedules set next_at = date_trunc('hour', now()) + every"
    )
    await call(db, "pause_schedule", name="paused")
    await db.execute("set pgwake.clock_offset = '0'")
    assert await database(db, "schedule_lag") == timedelta(0)

    # The first is due within an hour, the other one an hour later.
    await set_clock(db, "4 hours")
    lag = await database(db, "schedule_lag")
    assert timedelta(hours=3) <= lag <= timedelta(hours=4, minutes=1)


async def test_a_schedule_whose_ticks_nobody_computes_is_late(db: Connection) -> None:
    await db.execute("select pgwake.schedule('a', cron => '0 3 * * *', kind => 'noop')")
    await set_clock(db, "5 minutes")
    lag = await database(db, "schedule_lag")
    assert timedelta(minutes=5) <= lag < timedelta(minutes=5) + MEANWHILE


async def snapshot_age(db: Connection) -> timedelta:
    age: timedelta = await database(db, "oldest_snapshot_age")
    return age


async def age_of(db: Connection, other: Connection) -> timedelta:
    """How long a transaction has been open."""
    began_at = await other.fetchval("select now()")
    age: timedelta = await db.fetchval(
        "select clock_timestamp() - $1::timestamptz", began_at
    )
    return age


@pytest.mark.parametrize(
    "statements",
    ["begin isolation level repeatable read; select 1", "begin; select txid_current()"],
    ids=["a snapshot", "a transaction that has written"],
)
async def test_an_open_snapshot_shows_by_its_age(
    db: Connection, other: Connection, statements: str
) -> None:
    await other.execute(statements)

    oldest = await age_of(db, other)
    assert oldest <= await snapshot_age(db) < oldest + MEANWHILE
    await other.execute("rollback")
    after = await snapshot_age(db)
    assert after < oldest or after < timedelta(seconds=1)


async def test_a_transaction_without_a_snapshot_pins_nothing(
    db: Connection, other: Connection
) -> None:
    await other.execute("begin")
    began = await age_of(db, other)
    await other.execute("select 1")  # until then the portal has one
    await db.execute("select pg_sleep(0.3)")

    assert await snapshot_age(db) < began + timedelta(seconds=0.3)


async def test_a_prepared_transaction_shows_by_its_age(
    db: Connection, other: Connection
) -> None:
    await other.execute("begin; create table t (); prepare transaction 'forgotten'")
    try:
        await other.close()
        prepared: timedelta = await db.fetchval(
            "select clock_timestamp() - prepared from pg_prepared_xacts"
            " where database = current_database()"
        )
        assert prepared <= await snapshot_age(db) < prepared + MEANWHILE
    finally:
        await db.execute("rollback prepared 'forgotten'")


async def test_what_another_role_has_open_is_seen_by_whoever_may_read_statistics(
    connect: Connect, db: Connection, admin_url: str
) -> None:
    admin = await connect(admin_url)
    await admin.execute("begin isolation level repeatable read; select 1")
    oldest = await age_of(db, admin)
    await db.execute("select pg_sleep(0.2)")
    hidden = await snapshot_age(db)
    assert hidden < oldest + timedelta(seconds=0.2)

    other = await connect(admin_url)
    await other.execute(f"grant pg_read_all_stats to {OWNER}")
    try:
        assert await snapshot_age(db) >= oldest
    finally:
        await other.execute(f"revoke pg_read_all_stats from {OWNER}")


async def test_a_snapshot_in_another_database_pins_nothing_here(
    connect: Connect, admin_url: str
) -> None:
    admin = await connect(admin_url.rsplit("/", 1)[0] + "/postgres")
    await admin.execute("begin isolation level repeatable read; select 1")
    reader = await connect(admin_url)
    oldest = await age_of(reader, admin)
    await reader.execute("select pg_sleep(0.2)")

    assert await snapshot_age(reader) < oldest + timedelta(seconds=0.2)


async def test_it_reads_only(db: Connection) -> None:
    await insert(db)
    async with db.transaction(readonly=True):
        _, queues = await metrics(db)
    assert queues["default"]["pending_count"] == 1


async def test_a_large_backlog_is_divided_less_exactly_than_by_the_statistics(
    db: Connection,
) -> None:
    await db.execute(
        "insert into pgwake.jobs (kind, run_at)"
        " select 'noop', now() + case n % 3 when 0 then interval '1 hour' else '0' end"
        " from generate_series(1, 9000) as n"
    )
    async with db.transaction():
        _, queues = await metrics(db)
        (exact,) = await rows(db, "get_queue_stats")

    estimated = queues["default"]
    assert (exact["pending_count"], exact["scheduled_count"]) == (6000, 3000)
    assert exact["is_estimate"] is False
    assert estimated["pending_count"] + estimated["scheduled_count"] == 9000
    assert 2000 < estimated["scheduled_count"] < 4500


async def test_many_queues_share_what_is_known_of_their_division(
    db: Connection,
) -> None:
    await db.execute(
        "insert into pgwake.jobs (kind, queue, run_at)"
        " select 'noop', 'q' || n % 150,"
        "   now() + case when n / 150 % 3 = 0 then interval '1 hour' else '0' end"
        " from generate_series(0, 150 * 90 - 1) as n"
    )
    await call(db, "fold_counts")

    _, queues = await metrics(db)
    later = {row["scheduled_count"] for row in queues.values()}
    assert len(queues) == 150
    assert all(20 < count < 45 for count in later), later
    assert all(
        row["pending_count"] + row["scheduled_count"] == 90 for row in queues.values()
    )

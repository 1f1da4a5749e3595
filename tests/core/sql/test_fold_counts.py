import asyncio

from support import Connect, Connection
from support.sql.helpers import (
    call,
    claim,
    insert,
    insert_many,
    pair,
    pairs,
    rows,
    running,
    set_clock,
)

SUMS = (
    "select queue, sum(enqueued), sum(completed), sum(failed), sum(cancelled),"
    " round(sum(queue_ms)::numeric, 3), round(sum(execution_ms)::numeric, 3)"
    " from pgwake.count_rows group by queue order by queue"
)


async def sums(db: Connection) -> list[tuple[object, ...]]:
    return [tuple(row) for row in await db.fetch(SUMS)]


async def row_count(db: Connection) -> int:
    count: int = await db.fetchval("select count(*) from pgwake.count_rows")
    return count


async def use(db: Connection) -> None:
    """Insert and end some jobs of two queues, in many statements."""
    for queue in ("a", "b"):
        for _ in range(5):
            held = await running(db, queue=queue)
            await call(db, "complete_job", **pair(held))
        held = await running(db, queue=queue)
        await call(db, "fail_job", **pair(held), retryable=False)
        cancelled = await insert(db, queue=queue)
        await call(db, "cancel_job", job_id=cancelled)


async def test_a_statement_that_inserts_is_one_row(db: Connection) -> None:
    await insert_many(db, 1000)
    row = await db.fetchrow("select queue, enqueued from pgwake.counts")

    assert tuple(row or ()) == ("default", 1000)
    assert await row_count(db) == 1


async def test_a_batch_that_completes_is_one_row(db: Connection) -> None:
    await insert_many(db, 100)
    await call(db, "complete_jobs", **pairs(*await claim(db, 100)))

    counts = "select count(*), sum(completed) from pgwake.counts where completed > 0"
    assert tuple(await db.fetchrow(counts) or ()) == (1, 100)


async def test_a_fold_keeps_every_sum(db: Connection) -> None:
    await use(db)
    before = await sums(db)
    await call(db, "fold_counts")

    assert await sums(db) == before
    assert [row[1:5] for row in before] == [(7, 5, 1, 1)] * 2


async def test_half_a_minute_of_a_queue_becomes_one_row(db: Connection) -> None:
    async with db.transaction():  # the clock stands still
        await use(db)
    await call(db, "fold_counts")

    bins = (
        "select queue, at = date_bin('30 s', at, '2000-01-01') from pgwake.count_rows"
    )
    assert sorted(tuple(row) for row in await db.fetch(bins)) == [
        ("a", True),
        ("b", True),
    ]


async def test_what_is_older_than_six_minutes_becomes_one_row_for_ever(
    db: Connection,
) -> None:
    before: list[tuple[object, ...]] = []
    for minutes in (0, 7, 14, 21):
        await set_clock(db, f"{minutes} minutes")
        await use(db)
        before = await sums(db)
        await call(db, "fold_counts")
    await set_clock(db, "1 hour")
    await call(db, "fold_counts")

    assert await row_count(db) == 2
    assert await sums(db) == before
    oldest = "select bool_and(at = '-infinity') from pgwake.count_rows"
    assert await db.fetchval(oldest)


async def test_a_fold_with_nothing_to_do_touches_nothing(db: Connection) -> None:
    await use(db)
    await set_clock(db, "1 hour")
    await call(db, "fold_counts")
    folded = "select ctid, xmin, * from pgwake.count_sums"
    before = await db.fetch(folded)

    assert await call(db, "fold_counts") == 0
    assert before
    assert await db.fetch(folded) == before


async def test_averages_survive_a_fold(db: Connection) -> None:
    await use(db)
    before = await rows(db, "get_queue_stats")
    await call(db, "fold_counts")
    after = await rows(db, "get_queue_stats")

    for old, new in zip(before, after, strict=True):
        for column in ("avg_queue_time_ms", "avg_execution_time_ms"):
            assert abs(old[column] - new[column]) < 1e-6 * old[column]


async def test_an_old_snapshot_keeps_its_sums(connect: Connect, db: Connection) -> None:
    await use(db)
    reader = await connect()
    async with reader.transaction(isolation="repeatable_read"):
        before = await sums(reader)
        await use(db)
        await call(db, "fold_counts")
        assert await sums(reader) == before


async def test_no_snapshot_sees_a_sum_in_the_middle_of_a_fold(
    connect: Connect, db: Connection
) -> None:
    folder, producer = await connect(), await connect()
    seen: list[int] = []
    done = asyncio.Event()

    async def fold() -> None:
        while not done.is_set():
            await call(folder, "fold_counts")

    async def watch() -> None:
        while not done.is_set():
            (stats,) = await rows(db, "get_queue_stats", queue="default")
            seen.append(stats["enqueued_total"])

    await insert(producer)
    tasks = [asyncio.create_task(fold()), asyncio.create_task(watch())]
    for _ in range(300):
        await insert(producer)
    done.set()
    await asyncio.gather(*tasks)

    assert seen == sorted(seen)
    assert seen[-1] <= 301 == (await sums(db))[0][1]


async def test_two_folds_at_once_count_nothing_twice(
    connect: Connect, db: Connection
) -> None:
    await use(db)
    before = await sums(db)
    folders = [await connect() for _ in range(4)]

    async def fold(folder: Connection) -> None:
        for _ in range(10):
            await call(folder, "fold_counts")

    await asyncio.gather(*(fold(folder) for folder in folders))
    assert await sums(db) == before

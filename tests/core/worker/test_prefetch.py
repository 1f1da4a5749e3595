"""How far ahead a worker claims: enough to stay busy, never to hoard."""

import asyncio
import time
from itertools import pairwise
from uuid import UUID

from pgwake import Job, Registry
from support import Connection, wait_for
from support.sql.helpers import insert
from support.worker.helpers import all_ended, embedded, ended, in_status, insert_some
from support.worker.processes import Diary, StartProcess


def waiting() -> tuple[Registry, asyncio.Event]:
    registry = Registry()
    go = asyncio.Event()

    @registry.job("wait")
    async def wait() -> None:
        await go.wait()

    @registry.job("quick")
    async def quick() -> None: ...

    return registry, go


async def held_by(connection: Connection, worker: str) -> int:
    count: int = await connection.fetchval(
        "select count(*) from pgwake.jobs_live where claimed_by = $1", worker
    )
    return count


async def test_a_worker_with_slow_jobs_holds_no_more_than_its_slots(
    connection: Connection, database: str
) -> None:
    registry, go = waiting()
    for _ in range(10):
        await insert(connection, "wait")
    async with embedded(database, registry, queues="default:2") as worker:
        await wait_for(lambda: _holds(connection, worker.name, 2))
        async with embedded(database, registry, queues="default:20") as other:
            await wait_for(lambda: _holds(connection, other.name, 8))
            assert await held_by(connection, worker.name) == 2
            go.set()
            await all_ended(connection)


async def _holds(connection: Connection, worker: str, count: int) -> bool:
    return await held_by(connection, worker) == count


async def test_quick_jobs_run_while_the_next_are_claimed(
    connection: Connection, database: str
) -> None:
    registry = Registry()
    begun: list[tuple[UUID, float]] = []

    @registry.job("note")
    async def note(job: Job) -> None:
        begun.append((job.lease_id, time.time()))

    await insert_some(connection, "note", 6000)
    async with embedded(database, registry, queues="default:2"):
        await all_ended(connection)

    claims = await connection.fetch(
        "select lease_id, extract(epoch from min(started_at))::float8"
        " from pgwake.jobs group by lease_id order by 2"
    )
    last = dict(begun)
    busy = [last[one[0]] > two[1] for one, two in pairwise(claims)]
    # Without claiming ahead it would be none; on a busy machine it is not each.
    assert busy.count(True) > 2


async def test_what_was_claimed_ahead_goes_back_when_every_slot_is_held_up(
    connection: Connection, database: str
) -> None:
    registry, go = waiting()
    # A rate of quick ones makes it claim ahead; then all its slots are held up.
    await connection.execute(
        "insert into pgwake.jobs (kind) select 'quick' from generate_series(1, 2000)"
        " union all select 'wait' from generate_series(1, 2)"
        " union all select 'quick' from generate_series(1, 500)"
    )
    async with embedded(database, registry, queues="default:2") as worker:
        await in_status(connection, 2002, "running")
        await wait_for(lambda: _holds(connection, worker.name, 2))
        assert not await connection.fetchval(
            "select count(*) from pgwake.jobs_live"
            " where status = 'pending' and (attempt > 0 or bounce_count > 0)"
        )
        async with embedded(database, registry) as other:  # another gets them
            row = await ended(connection, 2502)
            assert row["claimed_by"] == other.name
        go.set()
        await all_ended(connection)


async def test_it_goes_back_from_a_worker_that_sleeps_too(
    connection: Connection, database: str
) -> None:
    registry, go = waiting()
    queues = "default:1"
    async with (
        embedded(database, registry, queues=queues),
        embedded(database, registry, queues=queues),
    ):
        # One of them claims all of the last ten, while the other goes on duty or not.
        for _ in range(5):
            go.clear()
            await insert_some(connection, "quick", 500)
            await connection.execute(
                "insert into pgwake.jobs (kind) values ('wait')"
                " union all select 'quick' from generate_series(1, 9)"
            )
            await wait_for(lambda: _only_the_slow_one_is_left(connection))
            go.set()
            await all_ended(connection)


async def _only_the_slow_one_is_left(connection: Connection) -> bool:
    kinds = "select array_agg(kind) from pgwake.jobs_live"
    return bool(await connection.fetchval(kinds) == ["wait"])


async def test_quick_jobs_are_run_once_however_many_workers_there_are(
    connection: Connection, start_worker: StartProcess, diary: Diary
) -> None:
    await start_worker("--queue", "default:3", processes=2)
    await start_worker("--queue", "default:20", processes=2)
    for _ in range(10):
        await insert_some(connection, "note", 300)
    await all_ended(connection)

    ran = [entry["job"] for entry in diary.entries(event="start")]
    assert sorted(ran) == list(range(1, 3001))
    assert not await connection.fetchval(
        "select count(*) from pgwake.jobs where attempt <> 1"
    )


async def test_a_handler_that_never_waits_leaves_the_loop_to_others(
    connection: Connection, database: str
) -> None:
    registry, go = waiting()
    longest = 0.0

    async def look() -> None:
        nonlocal longest
        loop = asyncio.get_running_loop()
        while True:
            before = loop.time()
            await asyncio.sleep(0)
            longest = max(longest, loop.time() - before)

    await insert_some(connection, "quick", 2000)
    async with embedded(database, registry, queues="default:2"):
        looking = asyncio.create_task(look())
        await all_ended(connection)
        looking.cancel()
        go.set()

    assert longest < 1

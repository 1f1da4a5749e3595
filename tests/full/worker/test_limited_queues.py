"""Workers at queues with limits: they run all there is, and hoard nothing.

The poll is an hour away, so only a wake-up or a timer can start a job.
"""

from datetime import timedelta
from itertools import pairwise

import pytest

from support import Connection
from support.sql.helpers import insert, set_kind, set_queue
from support.worker.helpers import all_ended, asleep, embedded, insert_some
from support.worker.metrics import wakeups
from support.worker.registries import Crowd, quick

SPANS = """
select started_at, finished_at from pgwake.jobs_finished order by started_at
"""


async def test_all_jobs_of_a_key_run_one_after_the_other(
    connection: Connection, database: str
) -> None:
    async with embedded(database, quick()) as worker:
        await asleep(worker)
        for _ in range(30):
            await insert(connection, "quick", concurrency_key="a")
        await all_ended(connection)
        assert wakeups(worker, cause="poll") == 0

    spans = [tuple(row) for row in await connection.fetch(SPANS)]
    assert len(spans) == 30
    assert all(ended <= started for (_, ended), (started, _) in pairwise(spans))


async def test_two_workers_share_the_jobs_of_a_key_without_a_poll(
    connection: Connection, database: str
) -> None:
    async with embedded(database, quick()) as one, embedded(database, quick()) as other:
        for key in "abab" * 10:
            await insert(connection, "quick", concurrency_key=key)
        await all_ended(connection)
        assert wakeups(one, cause="poll") + wakeups(other, cause="poll") == 0


async def test_a_key_that_gets_a_higher_limit_goes_on_at_once(
    connection: Connection, database: str
) -> None:
    await connection.execute(
        "insert into pgwake.concurrency_limits values ('default', 'a', 0)"
    )
    await insert(connection, "quick", concurrency_key="a")
    async with embedded(database, quick()) as worker:
        await asleep(worker)
        await connection.execute("update pgwake.concurrency_limits set max_running = 1")
        await all_ended(connection)


async def test_a_queue_with_max_running_runs_all_its_jobs(
    connection: Connection, database: str
) -> None:
    await set_queue(connection, max_running=2)
    crowd = Crowd()
    async with embedded(database, crowd.registry) as one:
        await asleep(one)
        async with embedded(database, crowd.registry):
            await insert_some(connection, "brief", 60)
            await all_ended(connection)
            assert wakeups(one, cause="poll") == 0
    assert crowd.most == 2


async def test_workers_of_two_queues_share_the_limit_of_a_kind_without_a_poll(
    connection: Connection, database: str
) -> None:
    await set_kind(connection, "brief", max_running=2)
    crowd = Crowd()
    async with (
        embedded(database, crowd.registry) as one,
        embedded(database, crowd.registry, queues="other") as other,
    ):
        await asleep(one)
        await asleep(other, "other")
        await insert_some(connection, "brief", 60)
        await connection.execute(
            "insert into pgwake.jobs (queue, kind, payload)"
            " select 'other', kind, payload from pgwake.jobs"
        )
        await all_ended(connection)
        assert wakeups(one, cause="poll") + wakeups(other, cause="poll") == 0
    assert crowd.most == 2


async def test_a_queue_with_a_rate_runs_its_jobs_on_time(
    connection: Connection, database: str
) -> None:
    await set_queue(connection, rate_limit=20.0, rate_burst=1)
    async with embedded(database, quick()) as worker:
        await asleep(worker)
        await insert_some(connection, "quick", 20)
        await all_ended(connection)
        assert wakeups(worker, cause="poll") == 0
        assert wakeups(worker, cause="timer") >= 10

    starts = [row[0] for row in await connection.fetch(SPANS)]
    gaps = [(two - one).total_seconds() for one, two in pairwise(starts)]
    assert len(gaps) == 19
    assert min(gaps) >= 0.0499


async def test_keys_with_a_rate_run_their_jobs_on_time(
    connection: Connection, database: str
) -> None:
    await set_queue(connection, key_rate=20.0, key_burst=1)
    async with embedded(database, quick()) as worker:
        await asleep(worker)
        for key in "ab" * 10:
            await insert(connection, "quick", concurrency_key=key)
        await all_ended(connection)
        assert wakeups(worker, cause="poll") == 0

    for key in "ab":
        found = await connection.fetch(
            "select started_at from pgwake.jobs where concurrency_key = $1 order by 1",
            key,
        )
        gaps = [two[0] - one[0] for one, two in pairwise(found)]
        assert len(gaps) == 9
        assert min(gaps) >= timedelta(milliseconds=49.9)


@pytest.mark.parametrize("max_running", [None, 3, 1000])
async def test_only_where_a_limit_leaves_little_room_nothing_is_claimed_ahead(
    connection: Connection, database: str, max_running: int | None
) -> None:
    if max_running:
        await set_queue(connection, max_running=max_running)
    await insert_some(connection, "quick", 2000)
    async with embedded(database, quick(), queues="default:2"):
        await all_ended(connection)
    largest = await connection.fetchval(
        "select max(c.jobs)"
        " from (select count(*) as jobs from pgwake.jobs group by lease_id) as c"
    )
    assert (largest > 2) is (max_running != 3)  # two slots

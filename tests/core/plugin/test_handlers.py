"""What handlers may ask for of a worker, they may ask for under pgwake.testing too."""

import os
from datetime import timedelta
from typing import Any

import pytest

from core.plugin.test_connections import DRIVERS, Do
from pgwake import Job, Registry
from pgwake.errors import ConfigurationError
from pgwake.testing import Jobs
from support import Connection
from support.sql.helpers import insert
from support.worker import process_handlers


async def test_a_handler_completes_its_job_in_its_own_transaction(
    database: str, connection: Connection
) -> None:
    registry = Registry()

    @registry.job("pay")
    async def pay(amount: int, job: Job) -> None:
        async with job.transaction() as own:
            await own.execute("select pgwake.enqueue('tell')")
            job.set_result({"paid": amount})

    @registry.job("tell")
    async def tell() -> None: ...

    await insert(connection, "pay", payload='{"amount": 5}')
    runs = await Jobs.of(database, registry).run_due()
    assert [(run.kind, run.status, run.result) for run in runs] == [
        ("pay", "completed", {"paid": 5}),
        ("tell", "completed", None),
    ]


async def test_what_is_rolled_back_is_a_failed_attempt(
    database: str, connection: Connection
) -> None:
    registry = Registry()

    @registry.job("pay", max_attempts=1)
    async def pay(job: Job) -> None:
        async with job.transaction() as own:
            await own.execute("select pgwake.enqueue('never')")
            raise ValueError("no money")

    await insert(connection, "pay")
    jobs = Jobs.of(database, registry)
    with pytest.raises(ValueError, match="no money"):
        await jobs.run_due()
    await jobs.assert_not_enqueued("never")


async def test_a_child_runs_after_its_parents_and_reads_their_results(
    database: str, connection: Connection
) -> None:
    registry = Registry()

    @registry.job("part")
    async def part(number: int, job: Job) -> int:
        job.report_progress({"at": number})
        return 10 * number

    @registry.job("total")
    async def total(job: Job) -> int:
        return sum(parent.result for parent in await job.parent_results())

    parts = [
        await insert(connection, "part", payload=f'{{"number": {n}}}') for n in (1, 2)
    ]
    await insert(connection, "total", depends_on=parts)
    runs = await Jobs.of(database, registry).run_due()
    assert [(run.kind, run.result) for run in runs] == [
        ("part", 10),
        ("part", 20),
        ("total", 30),
    ]
    progress = "select progress from pgwake.jobs where id = $1"
    assert await connection.fetchval(progress, parts[1]) == '{"at": 2}'


async def test_many_jobs_in_one_call_and_a_process(
    database: str, connection: Connection
) -> None:
    registry = Registry()

    @registry.job("index", batch=10, batch_wait=0)
    async def index(jobs: list[Job]) -> list[int]:
        return [job.id for job in jobs]

    registry.job("pid", process=True)(process_handlers.pid.function)

    first = await insert(connection, "index")
    await insert(connection, "pid")
    indexed, apart = await Jobs.of(database, registry).run_due()
    assert indexed.result == first
    assert apart.result not in (None, os.getpid())


async def test_a_handler_enqueues_where_its_job_is_from(
    database: str, connection: Connection
) -> None:
    registry = Registry()

    @registry.job("next")
    async def follow(number: int) -> int:
        return number

    @registry.job("first")
    async def first() -> None:
        await follow.enqueue(7)

    @registry.job("plain")
    def plain() -> None:
        follow.enqueue_sync(8)

    await insert(connection, "first")
    await insert(connection, "plain")
    runs = await Jobs.of(database, registry).run_due()
    assert [run.result for run in runs if run.kind == "next"] == [7, 8]


@pytest.mark.parametrize("driver", DRIVERS.values(), ids=DRIVERS)
async def test_schedules_fire_as_the_clock_moves(driver: Any, database: str) -> None:
    registry = Registry()
    do: Do

    @registry.job("report")
    async def report() -> None: ...

    @registry.job("poll")
    async def poll() -> None: ...

    async with driver(database) as (user, do):
        jobs = Jobs.of(database, registry).on(user)
        await do("select pgwake.schedule('daily', '30 2 * * *', 'report')")
        await do("select pgwake.schedule('often', kind => 'poll', every => '1 minute')")
        assert await jobs.run_due() == []
        await jobs.move_clock(86_400)
        assert {run.kind for run in await jobs.run_due()} == {"report", "poll"}
        await jobs.move_clock(60)
        assert [run.kind for run in await jobs.run_due()] == ["poll"]


async def test_a_job_of_an_open_transaction_is_not_completed_by_another_connection(
    database: str, connection: Connection
) -> None:
    registry = Registry()

    @registry.job("pay")
    async def pay(job: Job) -> None:
        async with job.transaction():
            pass

    transaction = connection.transaction()
    await transaction.start()
    await insert(connection, "pay")
    with pytest.raises(ConfigurationError, match=r"without on\(\)"):
        await Jobs.of(database, registry).on(connection).run_due()
    await transaction.rollback()


@pytest.mark.parametrize("driver", DRIVERS.values(), ids=DRIVERS)
async def test_a_job_with_steps_is_rehearsed_by_hand(
    driver: Any, database: str
) -> None:
    registry, calls = Registry(), list[int]()
    do: Do

    @registry.job("order")
    async def order(job: Job) -> Any:
        await job.step("once", calls.append, 1)
        await job.sleep("a day", days=1)
        return await job.wait_for("approved", timeout=3600)

    async with driver(database) as (user, do):
        jobs = Jobs.of(database, registry).on(user)
        await do("select pgwake.enqueue('order')")
        (sleeps,) = await jobs.run_due()
        assert (sleeps.status, sleeps.exception, await jobs.run_due()) == (
            "pending",
            None,
            [],
        )
        await jobs.move_clock(timedelta(days=1))
        (waits,) = await jobs.run_due()
        assert waits.status == "waiting"
        assert await jobs.emit("approved", {"by": 1})
        (done,) = await jobs.run_due()
        assert (done.status, done.result, calls) == ("completed", {"by": 1}, [1])

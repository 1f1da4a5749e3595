"""Steps, sleeps and waits of handlers, in a worker of this process."""

import asyncio
import time
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from pgwake import (
    ConfigurationError,
    InvalidArgumentError,
    Job,
    JobEnd,
    LeaseLostError,
    Queue,
    Registry,
    Suspend,
    WaitTimeoutError,
)
from support import Connect, Connection, wait_for
from support.sql.helpers import insert
from support.worker.helpers import embedded, ended, in_status, run

HOUR = timedelta(hours=1)


async def test_a_job_goes_on_where_it_was(
    connection: Connection, database: str
) -> None:
    """Steps, a sleep, an event, a job's end and a time-out, over many runs."""
    registry, calls, seen = Registry(), list[Any](), list[Any]()

    @registry.middleware
    async def watch() -> AsyncIterator[None]:
        try:
            yield
        except Suspend:
            seen.append("suspended")
            raise

    def note(what: Any) -> dict[str, Any]:
        calls.append(what)
        return {"what": (what, 1)}

    async def fail_once() -> None:
        calls.append("fails")
        if calls.count("fails") == 1:
            raise ValueError

    @registry.job("order", backoff_base=0.01)
    async def order(job: Job, other: int) -> Any:
        first = await job.step("first", note, "a")
        try:
            try:
                await job.sleep("a while", seconds=0.2)
            except Exception:  # noqa: BLE001, lets it pass
                calls.append("swallowed")
        finally:
            await asyncio.sleep(0)
            calls.append("finally")
        await job.step("second", fail_once)
        payload = await job.wait_for("approved", timeout=HOUR)
        end = await job.wait_for_job(other)
        try:
            await job.wait_for("never", timeout=0.1, name="in vain")
        except WaitTimeoutError as error:
            seen.append(str(error))
        both = await asyncio.gather(
            job.step("b", note, "b"), job.step("c", asyncio.sleep, 0, "c")
        )
        return [first, payload, end, both]

    @registry.job("other")
    async def other() -> str:
        return "done"

    other_id = await insert(connection, "other", queue="elsewhere")
    job_id = await insert(connection, "order", payload={"other": other_id})
    queue = Queue(connection)
    async with embedded(database, registry, queues="default"):
        await in_status(connection, job_id, "waiting")
        assert await queue.emit("approved", {"by": "Zoë"}) is True
        assert await queue.emit("approved", {"by": "X"}, keep=HOUR) is False
        await wait_for_wait(connection, f"job {other_id}")
        async with embedded(database, registry, queues="elsewhere"):
            row = await ended(connection, job_id)
    a = {"what": ["a", 1]}
    assert row["status"] == "completed", row["errors"]
    assert row["result"] == [
        a,
        {"by": "Zoë"},
        ["completed", "done"],
        [{"what": ["b", 1]}, "c"],
    ]
    assert [one for one in calls if one != "finally"] == ["a", "fails", "fails", "b"]
    assert calls.count("finally") > 1
    assert seen.count("suspended") >= 4
    assert seen[-1] == "event 'never' has not come in time"
    assert await connection.fetchval("select count(*) from pgwake.steps") == 0
    assert JobEnd(*row["result"][2]).status == "completed"


async def wait_for_wait(connection: Connection, name: str) -> None:
    """Wait until a job waits under this name."""

    async def is_there() -> bool:
        found = "select exists (select from pgwake.waits where name = $1)"
        return bool(await connection.fetchval(found, name))

    await wait_for(is_there)


async def test_a_transaction_counts_once_with_its_step(
    connection: Connection, database: str
) -> None:
    await connection.execute("create table stock (n int); insert into stock values (9)")
    registry, runs = Registry(), 0

    async def fail(job: Job) -> None:
        async with job.step_transaction("reserve") as step:
            await write(step)
            raise ZeroDivisionError

    @registry.job("reserve", backoff_base=0.01)
    async def reserve(job: Job) -> Any:
        nonlocal runs
        runs += 1
        if runs == 1:
            with pytest.raises(ZeroDivisionError):
                await fail(job)
            async with job.step_transaction("reserve") as step:
                assert not step.is_done
                with pytest.raises(ConfigurationError, match="transaction's block"):
                    await job.sleep("in vain", days=1)
                step.result = await write(step)
            raise ValueError("again")
        async with job.step_transaction("reserve") as step:
            assert (step.is_done, step.result) == (True, 8)
            with pytest.raises(ConfigurationError, match="is done"):
                _ = step.connection
        async with job.step_transaction("look") as step:
            step.result = await step.connection.fetchval("select n from stock")
        return step.result

    async def write(step: Any) -> Any:
        update = "update stock set n = n - 1 returning n"
        return await step.connection.fetchval(update)

    job_id = await insert(connection, "reserve")
    async with embedded(database, registry):
        row = await ended(connection, job_id)
    assert (row["status"], row["result"], runs) == ("completed", 8, 2), row["errors"]


async def test_steps_that_end_at_once_are_recorded_by_one_call(
    connection: Connection, connect: Connect, database: str
) -> None:
    registry, both = Registry(), asyncio.Barrier(2)
    calls = "select count(distinct xmin::text) from pgwake.steps where job_id = $1"
    fill = "update pgwake.steps set place = 1000 where job_id = $1 and name = '9'"

    async def record(job: Job, prefix: str) -> list[Any]:
        steps = (job.step(f"{prefix}{n}", float, n) for n in range(10))
        return await asyncio.gather(*steps, return_exceptions=True)

    @registry.job("many", max_attempts=1)
    async def many(job: Job, is_full: bool = False) -> Any:
        first, other = await record(job, ""), await connect()
        call_count = await other.fetchval(calls, job.id)
        if is_full:
            await other.execute(fill, job.id)
        async with both:  # one call for both jobs' steps: each hears of its own
            return [first, call_count, *map(repr, await record(job, "more "))]

    ids = [
        await insert(connection, "many", payload=payload)
        for payload in ({}, {"is_full": True})
    ]
    async with embedded(database, registry):
        rows = [await ended(connection, job_id) for job_id in ids]
    floats = [float(n) for n in range(10)]
    for row, repeated in zip(rows, ("0.0", "InvalidArg"), strict=True):
        assert row["status"] == "completed", row["errors"]
        assert row["result"][0] == floats
        assert row["result"][1] <= 3
        assert row["result"][2].startswith(repeated)


async def test_nothing_is_recorded_under_a_lost_lease(
    connection: Connection, connect: Connect, database: str
) -> None:
    registry, seen = Registry(), list[str]()

    @registry.job("late")
    async def late(job: Job) -> None:
        other = await connect()
        await other.execute("update pgwake.jobs_live set lease_id = gen_random_uuid()")
        with pytest.raises(LeaseLostError) as lost:
            await job.step("s", int)
        seen.append(str(lost.value))

    job_id = await insert(connection, "late")
    async with embedded(database, registry):
        await wait_for(lambda: seen)
    assert seen == [f"the lease of job {job_id} is lost"]
    assert await connection.fetchval("select count(*) from pgwake.steps") == 0


async def test_what_can_not_be_meant_is_refused(
    connection: Connection, database: str
) -> None:
    async def careless(job: Job) -> list[str]:
        said = []
        await job.step("once", int)
        for call in (
            lambda: job.step("once", int),
            lambda: job.step("", int),
            lambda: job.sleep("s", seconds=-1),
            lambda: job.sleep("s", days=1, until=job.created_at),
            lambda: job.wait_for("e", timeout=float("nan")),
            lambda: job.wait_for("x" * 513),
            lambda: job.wait_for_job(job.id),
            lambda: asyncio.create_task(job.sleep("other task", days=1)),
            lambda: asyncio.to_thread(job.step_sync, "async", asyncio.sleep, 0),
        ):
            with pytest.raises((ConfigurationError, InvalidArgumentError)) as refused:
                await call()
            said.append(str(refused.value))
        with pytest.raises(ConfigurationError, match="there await step"):
            job.step_sync("once", int)
        return said

    row = await run(connection, database, careless, max_attempts=1)
    assert row["status"] == "completed", row["errors"]
    assert "already" in row["result"][0]


async def test_a_swallowed_suspend_counts(
    connection: Connection, database: str
) -> None:
    runs = 0

    async def stubborn(job: Job) -> str:
        nonlocal runs
        runs += 1
        try:
            await job.sleep("a while", seconds=0.05)
        except BaseException:  # noqa: BLE001, swallowed
            return "not yet"
        return "done"

    row = await run(connection, database, stubborn, max_attempts=1)
    assert (row["result"], runs) == ("done", 2)


async def test_plain_handlers_step_sleep_and_wait_in_their_threads(
    connection: Connection, database: str
) -> None:
    calls = list[int]()

    def first_step() -> tuple[int, int]:
        calls.append(1)
        return 1, 2

    def plain(job: Job) -> Any:
        first = job.step_sync("first", first_step)
        job.sleep_sync("a while", seconds=0.05)
        with pytest.raises(WaitTimeoutError):
            job.wait_for_sync("never", timeout=0.05)
        time.sleep(0)
        return first

    row = await run(connection, database, plain, max_attempts=1)
    assert (row["result"], calls) == ([1, 2], [1]), row["errors"]


async def test_a_batch_steps_but_does_not_sleep(
    connection: Connection, database: str
) -> None:
    registry = Registry()

    @registry.job("many", batch=2)
    async def many(jobs: list[Job]) -> list[Any]:
        for job in jobs:
            with pytest.raises(ConfigurationError, match="many jobs a call"):
                await job.sleep("a day", days=1)
        return [await job.step("s", int, job.id) for job in jobs]

    ids = [await insert(connection, "many", max_attempts=1) for _ in range(2)]
    async with embedded(database, registry):
        rows = [await ended(connection, job_id) for job_id in ids]
    assert [row["result"] for row in rows] == ids, rows

"""Whatever a handler raises or swallows, its worker lives on and tells the truth."""

import asyncio
import contextlib
import functools
from collections.abc import Awaitable, Callable
from concurrent.futures import CancelledError as FutureCancelledError
from typing import Any

import pytest

from pgwake import Job, Registry, Snooze, Worker
from support import Connection
from support.sql.helpers import insert
from support.worker.helpers import embedded, ended, in_status, reasons, run

RAISED: list[BaseException] = [
    ValueError("plain"),
    asyncio.CancelledError(),
    FutureCancelledError(),
    SystemExit(3),
    KeyboardInterrupt(),
    GeneratorExit(),
    StopIteration(1),
    StopAsyncIteration(1),
    TimeoutError("of the handler's own"),
    BaseExceptionGroup("several", [ValueError("one"), KeyboardInterrupt()]),
    ExceptionGroup("several", [ValueError("one"), TypeError("two")]),
    RecursionError(),
    MemoryError(),
]


def named(error: BaseException) -> str:
    return type(error).__name__


async def check_that_it_works(connection: Connection, worker: Worker) -> None:
    """See that every slot still runs jobs."""
    count = sum(worker.queues.values())
    meeting = asyncio.Barrier(count)

    @worker.registry.job(f"meet {count}")
    async def meet() -> None:
        await meeting.wait()  # all of them run at once, or none ends

    ids = [await insert(connection, f"meet {count}") for _ in range(count)]
    for job_id in ids:
        assert (await ended(connection, job_id))["status"] == "completed"


async def raise_it(error: BaseException) -> None:
    raise error


def raise_it_in_a_thread(error: BaseException) -> None:
    raise error


@pytest.mark.parametrize("function", [raise_it, raise_it_in_a_thread])
async def test_what_a_handler_raises_is_a_failed_attempt(
    connection: Connection, database: str, function: Callable[..., Any]
) -> None:
    registry = Registry()
    for number, error in enumerate(RAISED):
        handler = functools.partial(function, error)
        registry.job(f"raise {number:02}", max_attempts=1)(handler)
    ids = [await insert(connection, kind) for kind in registry.kinds]
    async with embedded(database, registry, queues="default:3") as worker:
        rows = [await ended(connection, job_id) for job_id in ids]
        await check_that_it_works(connection, worker)

    for row, error in zip(rows, RAISED, strict=True):
        end = row["status"], row["attempt"], reasons(row)
        assert end == ("failed", 1, ["failed"]), error
        # Python makes a RuntimeError of a StopIteration that leaves a coroutine.
        shown = "RuntimeError" if named(error) == "StopIteration" else named(error)
        is_shown = row["errors"][0]["message"].startswith(shown)
        assert is_shown or function is raise_it_in_a_thread


async def cancel_itself() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(3600)


async def cancel_itself_and_return() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()


async def cancel_itself_twice() -> None:
    try:
        await cancel_itself()
    finally:
        await cancel_itself()


@pytest.mark.parametrize(
    "handler", [cancel_itself, cancel_itself_and_return, cancel_itself_twice]
)
async def test_a_handler_that_cancels_its_own_task_costs_no_slot(
    connection: Connection, database: str, handler: Callable[[], Awaitable[None]]
) -> None:
    registry = Registry()
    registry.job("cancel", max_attempts=1)(handler)

    ids = [await insert(connection, "cancel") for _ in range(6)]
    async with embedded(database, registry, queues="default:3") as worker:
        rows = [await ended(connection, job_id) for job_id in ids]
        await check_that_it_works(connection, worker)

    assert len({row["status"] for row in rows}) == 1


async def test_a_handler_that_cancels_its_own_task_leaves_nothing_to_the_next(
    connection: Connection, database: str
) -> None:
    registry = Registry()
    registry.job("cancel", max_attempts=1)(cancel_itself)

    @registry.job("look")
    async def look() -> int:
        task = asyncio.current_task()
        assert task is not None
        return task.cancelling()

    await insert(connection, "cancel")
    job_id = await insert(connection, "look", max_attempts=1)
    async with embedded(database, registry, queues="default:1"):  # on the same task
        row = await ended(connection, job_id)

    assert (row["status"], row["result"]) == ("completed", 0)


async def swallow() -> str:
    with contextlib.suppress(BaseException):
        await asyncio.sleep(3600)
    return "ok"


async def test_a_handler_that_swallows_its_time_out_is_not_done(
    connection: Connection, database: str
) -> None:
    registry = Registry()
    registry.job("swallow", timeout=0.1, max_attempts=1)(swallow)
    job_id = await insert(connection, "swallow")
    async with embedded(database, registry) as worker:
        row = await ended(connection, job_id)
        await check_that_it_works(connection, worker)

    assert (row["status"], row["result"]) == ("failed", None)
    assert reasons(row) == ["timeout"]


async def test_a_handler_that_swallows_the_shutdown_is_given_back(
    connection: Connection, database: str
) -> None:
    registry, begun = Registry(), asyncio.Event()

    @registry.job("swallow")
    async def swallow_it() -> str:
        begun.set()
        return await swallow()

    job_id = await insert(connection, "swallow")
    async with embedded(database, registry, grace=0):
        await begun.wait()

    row = await in_status(connection, job_id, "pending")
    assert (row["attempt"], row["bounce_count"], row["errors"]) == (0, 1, None)


@pytest.mark.parametrize(
    "error",
    [
        SystemExit(1),
        KeyboardInterrupt(),
        GeneratorExit(),
        ExceptionGroup("g", [OSError()]),
        Snooze(0),
    ],
    ids=named,
)
async def test_what_a_handler_raises_instead_of_its_time_out_is_a_time_out(
    connection: Connection, database: str, error: BaseException
) -> None:
    registry = Registry()

    @registry.job("replace", timeout=0.1, max_attempts=1)
    async def replace() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            raise error

    job_id = await insert(connection, "replace")
    async with embedded(database, registry, queues="default:3") as worker:
        row = await ended(connection, job_id)
        await check_that_it_works(connection, worker)

    assert (row["status"], reasons(row)) == ("failed", ["timeout"])


async def test_a_handlers_own_time_outs_are_its_own_affair(
    connection: Connection, database: str
) -> None:
    async def try_it() -> str:
        try:
            async with asyncio.timeout(0.01):
                await asyncio.sleep(3600)
        except TimeoutError:
            return "too slow"
        return "slept"

    row = await run(connection, database, try_it)

    assert (row["status"], row["result"]) == ("completed", "too slow")


async def test_a_job_knows_why_it_is_to_stop(
    connection: Connection, database: str
) -> None:
    heard: asyncio.Queue[Any] = asyncio.Queue()

    async def listen(job: Job) -> None:
        heard.put_nowait((job.should_stop, job.stop_reason))
        try:
            await asyncio.sleep(3600)
        finally:
            heard.put_nowait((job.should_stop, job.stop_reason))

    await run(connection, database, listen, timeout=0.1, max_attempts=1)

    assert [heard.get_nowait() for _ in range(2)] == [(False, None), (True, "timeout")]

"""What handlers share, and what is around them, by the worker's own runner."""

import os
from collections.abc import AsyncIterator, Iterator
from typing import Any
from uuid import uuid4

import pytest

from pgwake import Job, Registry, ResourceError, Snooze, injected
from pgwake.testing import Jobs, SyncJobs
from support import Connection
from support.sql.helpers import insert
from support.worker import process_handlers
from support.worker.shared_handlers import Model, Pool, events, registry


@pytest.fixture(autouse=True)
def _no_events() -> None:
    events.clear()


async def test_handlers_of_every_sort_get_what_they_share(
    database: str, connection: Connection
) -> None:
    for kind in ("async", "thread", "process"):
        await insert(connection, kind, payload='{"number": 7}')
    await insert(connection, "batch")
    runs = await Jobs.of(database, registry).run_due()
    assert [run.status for run in runs] == ["completed"] * 4
    in_loop, in_thread, apart, batch = (run.result for run in runs)
    here = os.getpid()
    assert in_loop == [7, "async", here, ["async"]]
    assert in_thread == [7, "thread", here, ["async", "thread"]]
    assert batch == ["batch", here, ["async", "thread", "batch"]]
    number, kind, pid, calls, opened_there = apart
    assert (number, kind, calls) == (7, "process", ["process"])
    assert pid != here
    assert opened_there == ["model opened", "plain hook"]
    assert events == [
        "pool opened",
        "model opened",
        "async begins, jobs 1",
        f"async returned {[*in_loop[:3], ['async']]!r}",
        "thread begins, jobs 1",
        f"thread returned {in_thread!r}",
        "process begins, jobs 1",
        f"process returned {apart!r}",
        "batch begins, jobs 1",
        f"batch returned {[batch]!r}",
        "model closed",
        "pool closed",
    ]


def test_a_plain_test_runs_them_too(database: str) -> None:
    jobs = SyncJobs.of(database, registry)
    assert jobs.run_due() == []
    assert events == []


async def test_what_middleware_swallows_fails_all_the_same_and_it_may_raise_another(
    database: str, connection: Connection
) -> None:
    kinds = ("fail", "fail in a thread", "look up", "look up apart")
    for kind in kinds:
        await insert(connection, kind)
    runs = await Jobs.of(database, registry).run_due(raises=False)
    ends = [(run.kind, run.status, run.error) for run in runs]
    assert ends == [
        ("fail", "failed", "ValueError: no"),
        ("fail in a thread", "failed", "ValueError: no"),
        ("look up", "pending", "looked up in vain"),
        ("look up apart", "pending", "looked up in vain"),
    ]
    assert "fail raised ValueError('no')" in events
    assert "fail in a thread raised ValueError('no')" in events


async def test_a_test_gives_handlers_its_own_in_place_of_resources(
    database: str, connection: Connection
) -> None:
    model = Model()
    model.pid = 1
    await insert(connection, "thread", payload='{"number": 7}')
    given = {Model: model, Pool: Pool()}
    (run,) = await Jobs.of(database, registry, given).run_due()
    assert run.result == [7, "thread", 1, ["thread"]]
    assert events == ["thread begins, jobs 1", f"thread returned {run.result!r}"]


async def test_middleware_changes_neither_the_result_nor_the_end_of_a_job(
    database: str, connection: Connection
) -> None:
    handlers = Registry()

    @handlers.middleware
    def meddling(job: Job) -> Iterator[Any]:
        yield "something else"
        if job.kind == "snooze":
            raise Snooze(60)

    @handlers.middleware
    async def sees_the_fence(job: Job, jobs: list[Job]) -> AsyncIterator[None]:
        assert jobs == [job]
        with pytest.raises(AttributeError):
            job.lease_id = uuid4()  # type: ignore[misc]
        yield

    @handlers.job("plain")
    async def plain() -> str:
        return "its own"

    @handlers.job("pay")
    async def pay(job: Job) -> None:
        async with job.transaction():
            job.set_result("paid")
        raise ValueError("too late")

    @handlers.job("snooze")
    def snooze() -> None: ...

    for kind in handlers.kinds:
        await insert(connection, kind)
    runs = await Jobs.of(database, handlers).run_due()
    assert {(run.kind, run.status, run.result) for run in runs} == {
        ("plain", "completed", "its own"),
        ("pay", "completed", "paid"),
        ("snooze", "pending", None),
    }


@pytest.mark.parametrize("is_async", [True, False])
@pytest.mark.parametrize(
    ("yields", "said"), [(0, "does not yield"), (2, "yields twice")]
)
async def test_middleware_that_does_not_yield_once_fails_the_attempt(
    database: str, connection: Connection, yields: int, said: str, *, is_async: bool
) -> None:
    handlers = Registry()

    def plain() -> Iterator[None]:
        for _ in range(yields):
            yield

    async def on_the_loop() -> AsyncIterator[None]:
        for _ in range(yields):
            yield

    handlers.middleware(on_the_loop if is_async else plain)
    handlers.job("kind", max_attempts=1)(process_handlers.pid.function)
    await insert(connection, "kind")
    (run,) = await Jobs.of(database, handlers).run_due(raises=False)
    assert run.status == "failed"
    assert run.error is not None
    assert said in run.error


async def test_a_resource_that_can_not_be_opened_says_which_it_is(
    database: str, connection: Connection
) -> None:
    handlers = Registry()

    @handlers.resource
    async def pool() -> Pool:
        raise ConnectionError("nobody there")

    @handlers.job("kind")
    async def run(pool: Pool = injected) -> None: ...

    await insert(connection, "kind")
    with pytest.raises(ResourceError, match=r"pool could not be opened: Conn.*nobody"):
        await Jobs.of(database, handlers).run_due()

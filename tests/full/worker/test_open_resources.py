"""When resources are opened and closed, and what becomes of a worker that can't."""

import asyncio
import os
import signal
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextvars import ContextVar
from pathlib import Path

import pytest

from pgwake import Registry, ResourceError, injected
from support import Connection, free_port
from support.sql.helpers import insert
from support.worker import model_handlers
from support.worker.helpers import embedded, ended
from support.worker.metrics import fetch
from support.worker.processes import Diary, StartProcess, gone

HELD = ContextVar("HELD", default="")


class Pool: ...


class Model: ...


def quick(*resources: Callable[..., object]) -> Registry:
    """A registry with a handler, and hooks."""
    registry = Registry()
    for one in resources:
        registry.resource(one)

    @registry.job("quick")
    async def quick() -> None: ...

    return registry


async def test_resources_are_there_from_before_the_first_handler_to_after_the_last(
    connection: Connection, database: str
) -> None:
    events: list[object] = []
    registry = Registry()

    @registry.resource
    async def pool() -> AsyncIterator[Pool]:
        HELD.set("by the pool")
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(asyncio.sleep(0))
            events.append("pool")
            yield Pool()
            events.append("no pool")

    @registry.resource
    def model(pool: Pool) -> Iterator[Model]:
        assert isinstance(pool, Pool)
        thread = threading.current_thread()
        events.append("model")
        yield Model()
        events.append("no model")
        assert threading.current_thread() is thread

    @registry.job("slow")
    async def slow(model: Model) -> None:
        events.append(model)
        started.set()
        try:
            await asyncio.sleep(60)
        finally:
            events.append("the last handler has ended")

    @registry.job("held")
    def held(pool: Pool = injected) -> str:
        assert isinstance(pool, Pool)
        return HELD.get()

    started = asyncio.Event()
    async with embedded(database, registry, grace=0):
        row = await ended(connection, await insert(connection, "held"))
        await insert(connection, "slow")
        await started.wait()
    assert row["result"] == "by the pool"
    pool_, model_, instance, *ends = events
    assert (pool_, model_) == ("pool", "model")
    assert isinstance(instance, Model)
    assert ends == ["the last handler has ended", "no model", "no pool"]


async def test_a_resource_that_takes_too_long_is_given_up(database: str) -> None:
    go_on = threading.Event()

    async def slow() -> None:
        await asyncio.sleep(60)

    def slow_in_its_thread() -> None:
        go_on.wait(60)

    try:
        for one in (slow, slow_in_its_thread):
            with pytest.raises(
                ResourceError, match=r"slow.* could not be opened: .*0.2 s"
            ):
                await embedded(database, quick(one), resource_timeout=0.2).run()
    finally:
        go_on.set()


async def test_a_stop_does_not_wait_for_a_resource_to_open(database: str) -> None:
    events: list[object] = []
    port = free_port()

    async def first() -> AsyncIterator[None]:
        yield
        events.append("closed")

    async def slow() -> None:
        answer = await fetch(port, "/readyz")
        events.append((answer.status, "resources are not open yet" in answer.text))
        worker.stop()
        await asyncio.sleep(60)

    worker = embedded(database, quick(first, slow), http_port=port)
    await worker.run()
    assert events == [(503, True), "closed"]


async def test_what_fails_to_close_keeps_no_other_from_it(database: str) -> None:
    events = []

    def first() -> Iterator[None]:
        yield
        events.append("closed")

    async def broken() -> AsyncIterator[None]:
        yield
        raise ConnectionError("gone")

    async def slow() -> AsyncIterator[None]:
        yield
        await asyncio.sleep(60)

    worker = embedded(database, quick(first, broken, slow), resource_timeout=0.5)
    with pytest.raises(ResourceError, match=r"broken could not be closed: .*gone"):
        async with worker:
            pass
    assert events == ["closed"]


async def test_a_task_of_a_resource_that_fails_ends_the_worker(database: str) -> None:
    fail = asyncio.Event()

    async def feed() -> AsyncIterator[None]:
        async def follow() -> None:
            await fail.wait()
            raise ConnectionError("the feed is gone")

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(follow())
            yield

    worker = embedded(database, quick(feed))
    run = asyncio.create_task(worker.run())
    fail.set()
    with pytest.raises(ResourceError, match="feed could not be closed"):
        await run


MODULE = """
import os
from collections.abc import AsyncIterator
from pathlib import Path

from pgwake import job, resource
from support.worker.shared_handlers import note

class Pool: ...

@resource
async def pool() -> AsyncIterator[Pool]:
    Path("there").read_text()
    note("open")
    yield Pool()
    note("close")

@job("pid")
async def pid(pool: Pool) -> int:
    return os.getpid()
"""


async def test_what_is_away_for_a_while_is_tried_again_and_closed_at_the_stop(
    connection: Connection,
    database: str,
    start_process: StartProcess,
    tmp_path: Path,
    diary: Diary,
) -> None:
    (tmp_path / "shared.py").write_text(MODULE)
    worker = await start_process(
        *("-m", "pgwake", "run"), database_url=database, imports="shared"
    )
    failed = await worker.logged("worker failed")
    assert "resource shared.pool could not be opened: FileNotF" in failed["problem"]
    (tmp_path / "there").touch()
    await worker.started(1)
    row = await ended(connection, await insert(connection, "pid"))
    (tmp_path / "there").unlink()
    before = len(worker.log("worker failed"))
    os.kill(row["result"], signal.SIGKILL)
    # Once it has worked, it goes on trying: what it needs may be about to come back.
    await worker.logged("worker failed", before + 1)
    (tmp_path / "there").touch()
    await worker.started(2)
    row = await ended(connection, await insert(connection, "pid"))
    worker.send(signal.SIGTERM)
    assert await worker.exit_code() == 0
    assert [entry["event"] for entry in diary.entries()] == ["open", "open", "close"]
    assert diary.entries()[-1]["pid"] == row["result"]


async def test_a_resource_that_never_opens_ends_the_supervisor(
    database: str, start_process: StartProcess, tmp_path: Path
) -> None:
    (tmp_path / "shared.py").write_text(MODULE)
    worker = await start_process(
        *("-m", "pgwake", "run"), database_url=database, imports="shared"
    )
    assert await worker.exit_code() == 69
    assert len(worker.log("worker failed")) == 5
    assert worker.log("no worker process could start", tries=5)
    assert not worker.log("process died")


async def test_a_process_opens_its_own_and_closes_them(
    connection: Connection,
    database: str,
    diary: Diary,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TEST_DIARY", str(diary.path))
    monkeypatch.setenv("TEST_MODEL", str(tmp_path / "model"))
    async with embedded(database, model_handlers.registry, queues="default:1"):
        row = await ended(connection, await insert(connection, "ask", max_attempts=1))
        assert row["errors"][0]["message"].startswith(
            "ResourceError: resource support.worker.model_handlers.model could not be"
            " opened: FileNotFoundError"
        )
        (tmp_path / "model").write_text("so it is")
        for _ in range(2):
            row = await ended(connection, await insert(connection, "ask"))
            assert row["result"] == "so it is"
    opened, closed = diary.entries()
    assert (opened["event"], closed["event"]) == ("open", "close")
    assert opened["pid"] == closed["pid"] != os.getpid()
    await gone(opened["pid"])

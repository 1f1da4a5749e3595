"""What a job leaves is gone with it, without the garbage collector.

That looks at what has lived for a while only when a quarter of everything has been
added: thousands of jobs, with their payloads.
"""

import gc
import weakref
from collections.abc import AsyncIterator, Callable, Iterator

import pytest

from pgwake import Job, Registry, Retry
from pgwake.jobs.error_reports import ReportedError
from pgwake.jobs.middleware import Middleware
from support import Connection, wait_for
from support.sql.helpers import insert
from support.worker import process_handlers
from support.worker.helpers import embedded, ended
from support.worker.processes import Diary

registry = Registry()
registry.job("process", process=True, max_attempts=1)(process_handlers.allocate)
errors: list["weakref.ref[NoError]"] = []


class NoError(Exception):
    """One that can be looked for."""


def problem() -> NoError:
    error = NoError("no")
    errors.append(weakref.ref(error))
    return error


@registry.job("async", max_attempts=1)
async def fail() -> None:
    raise problem()


@registry.job("thread", max_attempts=1)
def fail_in_a_thread() -> None:
    raise problem()


@registry.job("batch", batch=10, max_attempts=1)
async def fail_together(jobs: list[Job]) -> None:  # noqa: ARG001
    raise problem()


@registry.job("retry", max_attempts=1)
async def try_again() -> None:
    raise Retry(delay=1) from problem()


@registry.job("transaction", max_attempts=1)
async def fail_in_a_transaction(job: Job) -> None:
    async with job.transaction():
        raise problem()


@pytest.fixture(autouse=True)
def _without_collector() -> Iterator[None]:
    errors.clear()
    gc.collect()  # what other tests have left
    gc.disable()
    yield
    gc.enable()


def plain() -> Iterator[None]:
    yield


async def on_the_loop() -> AsyncIterator[None]:
    yield


@pytest.mark.parametrize("kind", ["async", "thread", "batch", "retry", "transaction"])
@pytest.mark.parametrize("middlewares", [(), (on_the_loop, plain)], ids=["", "around"])
async def test_a_failed_attempt_keeps_nothing_alive(
    database: str,
    connection: Connection,
    kind: str,
    middlewares: tuple[Callable[..., object], ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    around = [Middleware.of(one) for one in middlewares]
    monkeypatch.setattr(registry, "middlewares", around)
    async with embedded(database, registry):
        await ended(connection, await insert(connection, kind))

        assert len(errors) == 1
        await wait_for(lambda: all(error() is None for error in errors))


async def test_nor_does_one_in_a_process(
    database: str,
    connection: Connection,
    diary: Diary,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TEST_DIARY", str(diary.path))  # what the module asks for

    async with embedded(database, registry):
        job_id = await insert(connection, "process", payload={"mebibytes": -1})
        job = await ended(connection, job_id)

        assert job["status"] == "failed"
        await wait_for(
            lambda: not any(type(one) is ReportedError for one in gc.get_objects())
        )

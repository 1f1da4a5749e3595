"""Handlers, in a registry of their own, with all that can be shared by them."""

import json
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

from pgwake import Job, Registry, Retry

registry = Registry()
events: list[str] = []  # of this process


def note(event: str) -> None:
    """Append a line to the diary."""
    with Path(os.environ["TEST_DIARY"]).open("a") as file:
        file.write(json.dumps({"event": event, "pid": os.getpid()}) + "\n")


class Pool:
    """What async handlers share."""


class Model:
    """What plain handlers share, in whichever process."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.calls: list[str] = []


@registry.resource
async def hook(pool: Pool) -> AsyncIterator[None]:
    assert isinstance(pool, Pool)
    events.append("hook opened")
    yield
    events.append("hook closed")


@registry.resource
async def pool() -> AsyncIterator[Pool]:
    events.append("pool opened")
    yield Pool()
    events.append("pool closed")


@registry.resource
def model() -> Iterator[Model]:
    events.append("model opened")
    yield Model()
    events.append("model closed")


@registry.resource
def plain_hook() -> None:
    events.append("plain hook")


@registry.middleware
async def on_the_loop(jobs: list[Job], pool: Pool) -> AsyncIterator[None]:
    assert isinstance(pool, Pool)
    kind = jobs[0].kind
    events.append(f"{kind} begins, jobs {len(jobs)}")
    try:
        result = yield
    except (ValueError, Retry) as error:  # it is raised all the same
        events.append(f"{kind} raised {error!r}")
    else:
        events.append(f"{kind} returned {result!r}")


@registry.middleware
def beside_the_handler(jobs: list[Job], model: Model) -> Iterator[None]:
    model.calls.append(jobs[0].kind)
    try:
        yield
    except LookupError as error:
        raise Retry(3600, "looked up in vain") from error


@registry.job("async")
async def run_async(number: int, job: Job, pool: Pool, model: Model) -> list[Any]:
    assert isinstance(pool, Pool)
    return [number, job.kind, model.pid, model.calls]


@registry.job("thread")
def run_in_a_thread(number: int, job: Job, pool: Pool, model: Model) -> list[Any]:
    assert isinstance(pool, Pool)
    return [number, job.kind, model.pid, model.calls]


@registry.job("process", process=True)
def run_apart(number: int, job: Job, model: Model) -> list[Any]:
    return [number, job.kind, model.pid, model.calls, events]


@registry.job("batch", batch=10, batch_wait=0)
async def run_batch(model: Model, jobs: list[Job], pool: Pool) -> list[Any]:
    assert isinstance(pool, Pool)
    return [[job.kind, model.pid, model.calls] for job in jobs]


@registry.job("fail", max_attempts=1)
async def fail() -> None:
    raise ValueError("no")


@registry.job("fail in a thread", max_attempts=1)
def fail_in_a_thread() -> None:
    raise ValueError("no")


@registry.job("look up")
def look_up() -> None:
    raise LookupError("nothing there")


@registry.job("look up apart", process=True)
def look_up_apart() -> None:
    raise LookupError("nothing there")

"""Handlers as their producers hold them."""

import asyncio
import json
from collections.abc import Callable
from contextvars import copy_context
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any
from uuid import UUID

import psycopg
import pytest
from pydantic import BaseModel, Field

from pgwake import (
    AsyncQueue,
    ConfigurationError,
    InvalidArgumentError,
    Job,
    NewJob,
    Queue,
    Registry,
    SyncQueue,
    default_queue,
    set_default_queue,
)
from pgwake.produce.defaults import async_default, sync_default
from support import Connect, Connection
from support.sql.helpers import job
from support.worker.helpers import embedded, ended

handlers = Registry()
got: list[Any] = []


class Colour(Enum):
    RED = "red"


@dataclass
class Point:
    x: int
    y: int = 0


class Line(BaseModel):
    name: str = Field(alias="the-name")
    price: Decimal
    at: Point


@handlers.job("order", queue="orders")
async def order(
    number: int,
    lines: list[Line],
    due: date = date(2027, 1, 1),
    *,
    at: datetime | None = None,
    id: UUID | None = None,  # noqa: A002, as applications do
    colour: Colour = Colour.RED,
    delay: timedelta = timedelta(0),
    data: bytes = b"",
    **rest: Any,
) -> None:
    got.append((number, lines, due, at, id, colour, delay, data, rest))


@handlers.job("count")
async def count(job: Job, to: int, *, start: int = 1) -> None:
    got.append((job.kind, to, start))


@handlers.job("mail", max_attempts=3)
async def mail(to: str, subject: str = "Hi") -> None:
    got.append((to, subject))


@handlers.job("chain")
async def chain(left: int) -> None:
    if left:
        await chain.using(delay=0.001).enqueue(left - 1)


@handlers.job("chain_in_a_thread")
def chain_in_a_thread(left: int) -> None:
    if left:
        chain_in_a_thread.enqueue_sync(left=left - 1)


@pytest.fixture(autouse=True)
def _nothing_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    for default in (async_default, sync_default):
        monkeypatch.setattr(default, "_of_process", None)
    got.clear()


async def run_all(database: str, connection: Connection, *ids: int) -> None:
    """Run the jobs in a real worker, to their ends."""
    async with embedded(database, handlers, queues=("default:5", "orders:5")):
        for job_id in ids:
            row = await ended(connection, job_id)
            assert row["status"] == "completed", row["errors"]


async def test_arguments_come_to_the_handler_as_they_were_given(
    database: str, connection: Connection
) -> None:
    line = Line.model_validate({"the-name": "a", "price": "1.10", "at": {"x": 1}})
    values: dict[str, Any] = {
        "at": datetime(2027, 1, 31, 8, tzinfo=UTC),
        "id": UUID(int=7),
        "colour": Colour.RED,
        "delay": timedelta(seconds=1.5),
        "data": "é".encode(),
    }
    job_id = await order.using(connection).enqueue(
        1, [line], date(2027, 1, 2), **values, extra=[1]
    )
    await run_all(database, connection, job_id)

    assert got == [(1, [line], date(2027, 1, 2), *values.values(), {"extra": [1]})]
    assert (await job(connection, job_id))["queue"] == "orders"


async def test_a_handler_gets_the_job_without_its_being_given(
    database: str, connection: Connection
) -> None:
    using = count.using(connection)
    ids = [await using.enqueue(7), await using.enqueue(to=8, start=2)]
    await run_all(database, connection, *ids)

    assert sorted(got) == [("count", 7, 1), ("count", 8, 2)]


async def test_what_is_left_out_is_the_handlers_default_of_the_day_it_runs(
    connection: Connection,
) -> None:
    job_id = await mail.using(connection).enqueue("a")
    assert (await job(connection, job_id))["payload"] == {"to": "a"}


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: mail.new(to=1), "does not fit mail: to: Input should be a valid"),  # type: ignore[arg-type]
        (lambda: mail.new("a\0"), r"mail: a string holds \\u0000"),
        (lambda: mail.new("\ud800"), "mail: "),
        (lambda: order.new(1, [{}]), "lines.0.the-name: Field required"),  # type: ignore[list-item]
        (lambda: order.new(1, [], x=float("nan")), "order: not a JSON value"),
        (lambda: order.new(1, [], x=object()), "order: not a JSON value"),
        (lambda: order.new(1, [], data=b"\xff"), "order: "),
        (lambda: mail.using(priority=101).new("a"), "priority is 101"),
    ],
)
def test_arguments_that_would_not_arrive_are_refused(
    make: Callable[[], NewJob], said: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=said) as caught:
        make()
    assert caught.value.__cause__ is None  # it might show the payload


def test_arguments_that_a_call_would_not_take_are_a_type_error() -> None:
    with pytest.raises(TypeError, match="missing a required argument: 'to'"):
        mail.new()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="unexpected keyword argument 'cc'"):
        mail.new("a", cc="b")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="unexpected keyword argument 'job'"):
        count.new(1, job=None)  # type: ignore[call-arg]


def test_a_constraint_that_the_handler_sets_holds_for_its_producers() -> None:
    @Registry().job("few")
    def few(count: Annotated[int, Field(le=3)]) -> None: ...

    few.new(3)
    with pytest.raises(InvalidArgumentError, match="count: Input should be less than"):
        few.new(4)


async def test_options_are_those_of_using_and_then_of_the_decorator(
    connection: Connection,
) -> None:
    job_id = await order.using(connection, queue="q", unique_key="u").enqueue(1, [])
    same = await order.using(connection, queue="q", unique_key="u").enqueue(2, [])

    row = await job(connection, job_id)
    assert (row["queue"], row["unique_key"], same) == ("q", "u", job_id)


async def test_jobs_of_tasks_are_enqueued_together(connection: Connection) -> None:
    queue = Queue(connection)
    ids = await queue.enqueue_many([mail.new("a"), order.using(priority=3).new(1, [])])

    rows = [await job(connection, job_id) for job_id in ids]
    assert [(r["kind"], r["queue"], r["priority"]) for r in rows] == [
        ("mail", "default", 0),
        ("order", "orders", 3),
    ]


async def test_a_connection_that_blocks_makes_a_call_that_blocks(
    database: str, connection: Connection
) -> None:
    with psycopg.connect(database) as blocking:
        job_id = mail.using(blocking).enqueue("a")
        assert await connection.fetchval("select count(*) from pgwake.jobs") == 0

    assert (await job(connection, job_id))["payload"] == {"to": "a"}


async def test_without_a_queue_it_says_how_to_give_one() -> None:
    with pytest.raises(ConfigurationError, match=r"mail.enqueue has no queue.*using"):
        await mail.enqueue("a")
    with pytest.raises(ConfigurationError, match="a default SyncQueue by"):
        mail.enqueue_sync("a")


async def test_a_default_queue_is_set_once_for_the_process(
    connection: Connection, database: str
) -> None:
    with psycopg.connect(database) as blocking:
        set_default_queue(Queue(connection))
        set_default_queue(Queue(blocking))
        ids = [await mail.enqueue("a"), await mail.using(priority=1).enqueue("b")]
        ids.append(mail.enqueue_sync("c"))

    payloads = [(await job(connection, job_id))["payload"]["to"] for job_id in ids]
    assert payloads == ["a", "b", "c"]


async def test_a_block_has_a_default_queue_of_its_own(
    connection: Connection, connect: Connect
) -> None:
    set_default_queue(Queue(connection))
    is_inside, others_are_done = asyncio.Event(), asyncio.Event()

    async def request() -> None:
        inner = await connect()
        async with inner.transaction():
            with default_queue(Queue(inner)):
                is_inside.set()
                await others_are_done.wait()
                await mail.enqueue("inside")
            await mail.enqueue("after")
            raise OwnError

    running = asyncio.create_task(request())
    await is_inside.wait()
    await mail.enqueue("beside")
    others_are_done.set()
    with pytest.raises(OwnError):
        await running

    rows = await connection.fetch("select payload->>'to' from pgwake.jobs order by id")
    assert [row[0] for row in rows] == ["beside", "after"]


class OwnError(Exception):
    """What goes wrong in a request."""


def test_a_block_that_one_thread_enters_and_another_leaves_sets_nothing(
    database: str,
) -> None:
    # As FastAPI does with a dependency that is a plain generator.
    with psycopg.connect(database) as blocking:
        block = default_queue(Queue(blocking))
        copy_context().run(block.__enter__)
        with pytest.raises(ConfigurationError, match=r"mail.enqueue_sync has no queue"):
            copy_context().run(mail.enqueue_sync, "a")
        copy_context().run(block.__exit__, None, None, None)


@pytest.mark.parametrize("kind", ["chain", "chain_in_a_thread"])
async def test_a_handler_enqueues_on_its_workers_database_by_itself(
    database: str, connection: Connection, kind: str
) -> None:
    await Queue(connection).enqueue(kind, {"left": 2})
    async with embedded(database, handlers):
        for job_id in (1, 2, 3):
            await ended_later(connection, job_id)

    assert async_default._of_worker.get() is None


async def ended_later(connection: Connection, job_id: int) -> None:
    """Wait until a job is there and has ended."""
    async with asyncio.timeout(20):
        while not await connection.fetchval(
            "select count(*) from pgwake.jobs where id = $1 and status = 'completed'",
            job_id,
        ):
            await asyncio.sleep(0.01)


async def test_a_wrong_target_is_refused_with_the_right_ones_named() -> None:
    with pytest.raises(ConfigurationError, match=r"builtins.int is no connection: use"):
        Queue(1)  # type: ignore[call-overload]
    with pytest.raises(ConfigurationError, match="str does not block: use AsyncQueue"):
        SyncQueue("postgresql://")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="int is no connection"):
        AsyncQueue(1)  # type: ignore[arg-type]


def test_a_payload_of_a_task_is_json() -> None:
    text = order.new(1, [], at=datetime(2027, 1, 31, 8, tzinfo=UTC)).as_json()
    assert json.loads(text)["payload"] == {
        "number": 1,
        "lines": [],
        "at": "2027-01-31T08:00:00Z",
    }


async def test_threads_ask_by_the_loop_and_the_loop_is_never_blocked(
    connection: Connection,
) -> None:
    for_threads = Queue(connection).for_threads()
    ids = await asyncio.to_thread(for_threads.enqueue_many, [mail.new("a")])
    assert await asyncio.to_thread(for_threads.copy, [mail.new("b")]) == 1
    with pytest.raises(ConfigurationError, match="would block the event loop: await"):
        mail.using(for_threads).enqueue("c")

    rows = await connection.fetch("select id, payload->>'to' from pgwake.jobs")
    assert sorted(map(tuple, rows)) == [(ids[0], "a"), (ids[0] + 1, "b")]

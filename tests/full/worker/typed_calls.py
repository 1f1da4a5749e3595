"""Code as users write it, for type checkers alone: they refuse what is marked, no more.

Never run. A mark that mypy or pyright does not need is an error.
"""
# pyright: strict, reportUnnecessaryTypeIgnoreComment=true

from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import date, timedelta
from typing import Any, assert_type
from uuid import uuid4

import asyncpg
import psycopg
import psycopg_pool
from django.db import connection as django_connection
from sqlalchemy import Connection, Engine
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession
from sqlalchemy.orm import Session, scoped_session

from pgwake import (
    AsyncQueue,
    Ended,
    Job,
    NewJob,
    Queue,
    Registry,
    Settings,
    SyncQueue,
    Worker,
    default_queue,
    injected,
    job,
    middleware,
    resource,
)


@job("mail", queue="mails")
async def mail(to: str, subject: str = "Hi") -> None: ...


@job("report")
def report(job: Job, day: date, *, copies: int = 1) -> dict[str, int]:
    return {}


@job("tidy")
async def tidy(job: Job) -> None: ...


class Pool: ...


@resource
async def pool() -> AsyncGenerator[Pool]:
    yield Pool()


@resource
@asynccontextmanager
async def hook(pool: Pool) -> AsyncGenerator[None]:
    yield


@resource
async def other_hook() -> AsyncIterator[None]:
    yield


@middleware
def plain(job: Job) -> Iterator[None]:
    yield


@middleware
async def on_the_loop(jobs: list[Job], pool: Pool) -> AsyncGenerator[None, Any]:
    result = yield
    assert_type(result, Any)


@job("later")
def later(order: int, job: Job) -> str:
    return ""


@job("charge")
async def charge(
    order: int, note: str = "", *, pool: Pool = injected, job: Job = injected
) -> str:
    return ""


@job("anything")
async def anything(value: object, copies: int = 1) -> None: ...


@job("untyped")
async def untyped(value: Any) -> None: ...


@job("many", batch=10)
async def many(jobs: list[Job], orders: list[int], pool: Pool = injected) -> None: ...


async def shared() -> None:
    async with asynccontextmanager(pool)() as opened:  # it is the function it was
        assert_type(opened, Pool)
    assert_type(await charge.enqueue(1), int)
    assert_type(await charge.using(delay=1).enqueue(order=1, note="a"), int)
    assert_type(await charge(1, pool=Pool(), job=Job.__new__(Job)), str)
    await charge.enqueue("a")  # type: ignore[arg-type]
    await charge.enqueue(1, pol=Pool())  # type: ignore[call-arg]
    later.enqueue_sync(1)
    later.enqueue_sync(order=1)
    assert_type(later(1, Job.__new__(Job)), str)
    await anything.enqueue(1, copies=2)
    await anything.enqueue(value=1)
    await untyped.enqueue(value=1)
    await anything.enqueue(1, "a")  # type: ignore[arg-type]
    resource(1)  # type: ignore[type-var]
    middleware(None)  # type: ignore[type-var]
    job("a", timout=1)  # type: ignore[call-arg]
    Job.__new__(Job).lease_id = uuid4()  # type: ignore[misc]


async def workers() -> None:
    settings = Settings(
        database_url="postgresql://",
        queues="default:5",
        imports=["jobs"],
        http_handlers={"a": "http://"},
        grace=10,
    )
    async with Worker(settings, Registry()) as worker:
        assert_type(worker.queues, dict[str, int])
    Settings(databas_url="postgresql://")  # type: ignore[call-arg]
    Settings(processes="many")  # type: ignore[arg-type]
    Settings(log_level="loud")  # type: ignore[arg-type]


async def call() -> None:
    from pgwake import Quue  # type: ignore[attr-defined]  # noqa: F401, PLC0415

    await mail("a")
    await mail.enqueue("a")
    assert_type(await mail.enqueue(to="a", subject="b"), int)
    assert_type(report(Job.__new__(Job), date(2027, 1, 1), copies=2), dict[str, int])
    assert_type(report.enqueue_sync(date(2027, 1, 1), copies=2), int)
    assert_type(report.new(day=date(2027, 1, 1)), NewJob)
    await tidy.enqueue()
    await mail.enqueue()  # type: ignore[call-arg]
    await mail.enqueue(1)  # type: ignore[arg-type]
    await mail.enqueue("a", cc="b")  # type: ignore[call-arg]
    await mail.enqueue("a", "b", "c")  # type: ignore[call-arg]
    await mail("a", cc="b")  # type: ignore[call-arg]
    mail.enqueue("a")  # type: ignore[unused-coroutine]
    report.enqueue_sync("2027-01-01")  # type: ignore[arg-type]
    report.new(date(2027, 1, 1), 2)  # type: ignore[call-arg]
    await tidy.enqueue("a")  # type: ignore[call-arg]


async def options(pool: asyncpg.Pool[asyncpg.Record], session: Session) -> None:
    await mail.using(delay=60).enqueue("a")
    await mail.using(pool, delay=timedelta(1), on_conflict="replace").enqueue("a")
    await mail.using(Queue(pool)).enqueue("a")
    assert_type(mail.using(session).enqueue("a"), int)
    assert_type(mail.using(Queue(session), depends_on=[1]).enqueue("a"), int)
    mail.using(pool, dely=60)  # type: ignore[call-overload]
    mail.using(pool, on_conflict="ignore")  # type: ignore[call-overload]
    mail.using(1)  # type: ignore[call-overload]
    mail.using(session).enqueue(1)  # type: ignore[arg-type]
    mail.using(pool).enqueue("a")  # type: ignore[unused-coroutine]
    await mail.using(session).enqueue("a")  # type: ignore[misc]


async def queues(
    a: asyncpg.Connection[asyncpg.Record],
    b: asyncpg.Pool[asyncpg.Record],
    c: psycopg.AsyncConnection,
    d: psycopg_pool.AsyncConnectionPool,
    e: AsyncSession,
    f: AsyncConnection,
    g: AsyncEngine,
) -> None:
    assert_type(Queue("postgresql://"), AsyncQueue)
    assert_type(Queue(a), AsyncQueue)
    assert_type(Queue(b), AsyncQueue)
    assert_type(Queue(c), AsyncQueue)
    assert_type(Queue(d), AsyncQueue)
    assert_type(Queue(e), AsyncQueue)
    assert_type(Queue(f), AsyncQueue)
    assert_type(Queue(g), AsyncQueue)
    async with b.acquire() as borrowed, Queue("postgresql://") as queue:
        assert_type(Queue(borrowed), AsyncQueue)
        assert_type(await queue.enqueue("a", {"b": 1}, priority=1), int)
        assert_type(await queue.enqueue_many([NewJob("a"), mail.new("b")]), list[int])
        assert_type(await queue.copy(NewJob("a") for _ in range(3)), int)
        assert_type(await queue.wait_for(1, timeout=1), Ended)
        with default_queue(queue):
            await mail.enqueue("a")
        queue.enqueue("a")  # type: ignore[unused-coroutine]
        await queue.enqueue("a", prio=1)  # type: ignore[call-arg]
        await queue.enqueue("a", ["b"])  # type: ignore[arg-type]
        await queue.enqueue_many(["a"])  # type: ignore[list-item]
        NewJob("a", run_at=date(2027, 1, 1))  # type: ignore[arg-type]


def blocking(
    a: psycopg.Connection,
    b: psycopg_pool.ConnectionPool,
    c: Session,
    d: scoped_session[Session],
    e: Connection,
    f: Engine,
) -> None:
    assert_type(Queue(a), SyncQueue)
    assert_type(Queue(b), SyncQueue)
    assert_type(Queue(c), SyncQueue)
    assert_type(Queue(d), SyncQueue)
    assert_type(Queue(e), SyncQueue)
    assert_type(Queue(f), SyncQueue)
    assert_type(Queue(django_connection), SyncQueue)
    assert_type(Queue(a).enqueue("a"), int)
    assert_type(Queue(a).wait_for(1), Ended)
    Queue(1)  # type: ignore[call-overload]
    Queue(a).enqueue("a", on_conflict="ignore")  # type: ignore[arg-type]
    SyncQueue("postgresql://")  # type: ignore[arg-type]


async def completions(job: Job, a: AsyncSession, b: Session) -> None:
    assert_type(await job.complete(a, {"b": 1}), None)
    job.complete(a)  # type: ignore[unused-coroutine]
    job.complete(b)
    job.complete(django_connection, 1)
    job.complete(1)  # type: ignore[call-overload]

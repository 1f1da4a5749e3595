"""What mypy says of a producer's code: good calls pass, each bad one is found."""

import re
import subprocess
import sys
from pathlib import Path

from support import CHECKOUT

CACHE = CHECKOUT / ".mypy_cache" / "calls"  # what SOURCE imports takes seconds

# Each line with a mark has that error of mypy's, and no other line has one.
SOURCE = """
from datetime import date, timedelta
from typing import assert_type

import asyncpg
import psycopg
import psycopg_pool
from django.db import connection as django_connection
from sqlalchemy import Connection, Engine
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession
from sqlalchemy.orm import Session, scoped_session

from pgwake import AsyncQueue, Ended, Job, NewJob, Queue, SyncQueue, default_queue, job
from pgwake import Quue  # attr-defined


@job("mail", queue="mails")
async def mail(to: str, subject: str = "Hi") -> None: ...


@job("report")
def report(job: Job, day: date, *, copies: int = 1) -> dict[str, int]:
    return {}


@job("tidy")
async def tidy(job: Job) -> None: ...


async def call() -> None:
    await mail("a")
    await mail.enqueue("a")
    assert_type(await mail.enqueue(to="a", subject="b"), int)
    assert_type(report(Job.__new__(Job), date.today(), copies=2), dict[str, int])
    assert_type(report.enqueue_sync(date.today(), copies=2), int)
    assert_type(report.new(day=date.today()), NewJob)
    await tidy.enqueue()
    await mail.enqueue()  # call-arg
    await mail.enqueue(1)  # arg-type
    await mail.enqueue("a", cc="b")  # call-arg
    await mail.enqueue("a", "b", "c")  # call-arg
    await mail("a", cc="b")  # call-arg
    mail.enqueue("a")  # unused-coroutine
    report.enqueue_sync("2027-01-01")  # arg-type
    report.new(date.today(), 2)  # call-arg
    await tidy.enqueue("a")  # call-arg


async def options(pool: asyncpg.Pool[asyncpg.Record], session: Session) -> None:
    await mail.using(delay=60).enqueue("a")
    await mail.using(pool, delay=timedelta(1), on_conflict="replace").enqueue("a")
    await mail.using(Queue(pool)).enqueue("a")
    assert_type(mail.using(session).enqueue("a"), int)
    assert_type(mail.using(Queue(session), depends_on=[1]).enqueue("a"), int)
    mail.using(pool, dely=60)  # call-overload
    mail.using(pool, on_conflict="ignore")  # call-overload
    mail.using(1)  # call-overload
    mail.using(session).enqueue(1)  # arg-type
    mail.using(pool).enqueue("a")  # unused-coroutine
    await mail.using(session).enqueue("a")  # misc


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
        queue.enqueue("a")  # unused-coroutine
        await queue.enqueue("a", prio=1)  # call-arg
        await queue.enqueue("a", ["b"])  # arg-type
        await queue.enqueue_many(["a"])  # list-item
        NewJob("a", run_at=date.today())  # arg-type


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
    Queue(1)  # call-overload
    Queue(a).enqueue("a", on_conflict="ignore")  # arg-type
    SyncQueue("postgresql://")  # arg-type
"""


def test_mypy_finds_each_bad_call_and_no_good_one(tmp_path: Path) -> None:
    source = tmp_path / "calls.py"
    source.write_text(SOURCE)
    command = [
        *(sys.executable, "-m", "mypy", "--strict", "--config-file="),
        *("--enable-error-code=unused-awaitable", "--python-version=3.11"),
        *("--no-error-summary", "--hide-error-context", "--cache-dir", str(CACHE)),
        str(source),
    ]
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, cwd=CHECKOUT / "worker"
    )

    found = re.findall(
        r"calls.py:(\d+): error: .*\[([\w-]+)\]$", done.stdout, re.MULTILINE
    )
    expected = [
        (str(number), marked[1])
        for number, line in enumerate(SOURCE.split("\n"), 1)
        if (marked := re.search(r"  # ([\w-]+)$", line))
    ]
    assert sorted(set(found)) == sorted(expected), done.stdout + done.stderr

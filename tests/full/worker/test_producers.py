"""Producers on every kind of connection, in the transaction that it is in."""

import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest

from pgwake import (
    DuplicateJobError,
    Ended,
    InvalidArgumentError,
    NewJob,
    NoSuchJobError,
    PgwakeError,
    QueueFullError,
)
from support import Connection
from support.sql.helpers import ABSENT, job, set_queue
from support.worker.helpers import asleep, embedded, ended
from support.worker.producers import CONNECTIONS, POOLS, Producer
from support.worker.registries import quick

Open = Callable[[str], AbstractAsyncContextManager[Producer]]
BERLIN = ZoneInfo("Europe/Berlin")
HOSTILE = "\t\n\r \\N \\. \\\\ ' \" {a,b} %s $1 :x \N{PILE OF POO}"


@pytest.fixture(params=CONNECTIONS, ids=lambda opened: opened.__name__)
async def producer(
    request: pytest.FixtureRequest, database: str, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Producer]:
    """A queue on a connection of each kind."""
    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "true")
    async with request.param(database) as producer:
        yield producer


@pytest.fixture(params=POOLS, ids=lambda opened: opened.__name__)
async def pool(
    request: pytest.FixtureRequest, database: str
) -> AsyncIterator[Producer]:
    """A queue on what gives connections, of each kind."""
    async with request.param(database) as producer:
        yield producer


async def kinds(connection: Connection) -> list[str]:
    """The kinds of the jobs that have been committed, in order of id."""
    rows = await connection.fetch("select kind from pgwake.jobs order by id")
    return [row[0] for row in rows]


class OwnError(Exception):
    """What goes wrong in an application."""


async def test_a_job_is_there_when_its_transaction_commits_and_not_before(
    producer: Producer, connection: Connection
) -> None:
    async with producer.transaction():
        job_id = await producer("enqueue", "mail", {"to": "a"})
        assert await kinds(connection) == []

    assert (await job(connection, job_id))["payload"] == {"to": "a"}


async def test_nothing_is_there_when_its_transaction_is_rolled_back(
    producer: Producer, connection: Connection
) -> None:
    for method in ("enqueue", "enqueue_many", "copy"):
        what: Any = "mail" if method == "enqueue" else [NewJob("mail")]
        with contextlib.suppress(OwnError):
            async with producer.transaction():
                await producer(method, what)
                raise OwnError

        assert await kinds(connection) == [], method


async def test_every_option_lands_in_its_column(
    producer: Producer, connection: Connection
) -> None:
    run_at = datetime(2127, 1, 31, 7, tzinfo=UTC)
    async with producer.transaction():
        parent = await producer("enqueue", "parent")
        options: dict[str, Any] = {
            "queue": HOSTILE,
            "priority": -7,
            "run_at": run_at,
            "max_attempts": 3,
            "unique_key": HOSTILE,
            "on_conflict": "raise",
            "metadata": {"m": HOSTILE},
            "concurrency_key": HOSTILE,
            "depends_on": [parent],
            "on_parent_failure": "run",
            "webhook": "https://example.org/?a=%20",
            "expires_at": run_at,
            "unique_until": run_at,
        }
        b, c = (NewJob(kind, {"p": HOSTILE}, **options) for kind in "bc")
        ids = [
            await producer("enqueue", HOSTILE, {"p": HOSTILE}, **options),
            *await producer("enqueue_many", [b]),
        ]
        await producer("copy", [c])

    ids.append(ids[-1] + 1)
    for job_id in ids:
        row = await job(connection, job_id)
        assert row["payload"] == {"p": HOSTILE}
        expected = {k: v for k, v in options.items() if k != "on_conflict"}
        assert {name: row[name] for name in expected} == expected


async def test_a_delay_counts_from_now_by_the_clock_of_the_database(
    producer: Producer, connection: Connection
) -> None:
    async with producer.transaction():
        await producer("enqueue", "a", delay=90.5)
        await producer("enqueue_many", [NewJob("a", delay=timedelta(seconds=90.5))])
        await producer("copy", [NewJob("a", delay=90.5), NewJob("a")])

    rows = await connection.fetch(
        "select run_at - created_at from pgwake.jobs order by id"
    )
    assert [row[0].total_seconds() for row in rows] == [90.5, 90.5, 90.5, 0]


@pytest.mark.parametrize("opened", CONNECTIONS, ids=lambda opened: opened.__name__)
async def test_times_do_not_depend_on_the_time_zone_of_the_session(
    opened: Open,
    database: str,
    connection: Connection,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """New York has a day of another length within half a year."""
    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "true")
    name = database.rpartition("/")[2]
    await connection.execute(f"alter database {name} set timezone = 'America/New_York'")
    at, delay = datetime(2127, 7, 1, 12, tzinfo=BERLIN), timedelta(days=183)
    jobs = [NewJob("at", run_at=at), NewJob("in", delay=delay)]
    async with opened(database) as producer, producer.transaction():
        await producer("enqueue", "at", run_at=at)
        await producer("enqueue", "in", delay=delay)
        await producer("enqueue_many", jobs)
        await producer("copy", jobs)
        assert (await producer("get_job", 1))["run_at"] == at

    rows = await connection.fetch(
        "select run_at, created_at from pgwake.jobs order by id"
    )
    assert [row["run_at"] for row in rows[::2]] == [at] * 3
    assert [row["run_at"] - row["created_at"] for row in rows[1::2]] == [delay] * 3


async def test_ids_come_in_the_order_of_the_jobs(
    producer: Producer, connection: Connection
) -> None:
    async with producer.transaction():
        jobs = [NewJob(f"k{n}", {"n": n}) for n in range(100)]
        ids = await producer("enqueue_many", jobs)

    rows = await connection.fetch("select id, kind from pgwake.jobs_live order by id")
    assert [row["id"] for row in rows] == ids
    assert [row["kind"] for row in rows] == [new.kind for new in jobs]


async def test_no_jobs_are_no_error(producer: Producer) -> None:
    async with producer.transaction():
        assert await producer("enqueue_many", []) == []
        assert await producer("copy", []) == 0


async def test_values_that_json_has_no_word_for_become_what_pydantic_makes_of_them(
    producer: Producer, connection: Connection
) -> None:
    payload = {"day": date(2027, 1, 31), "id": UUID(int=1), "sum": Decimal("1.10")}
    async with producer.transaction():
        job_id = await producer("enqueue", "a", payload)

    assert (await job(connection, job_id))["payload"] == {
        "day": "2027-01-31",
        "id": "00000000-0000-0000-0000-000000000001",
        "sum": "1.10",
    }


async def test_an_error_leaves_what_is_before_the_savepoint(
    producer: Producer, connection: Connection
) -> None:
    async with producer.transaction():
        live = await producer("enqueue", "a", unique_key="u")
        with pytest.raises(DuplicateJobError) as caught:
            async with producer.transaction():
                await producer("enqueue", "a", unique_key="u", on_conflict="raise")
        await producer("enqueue", "b")

    assert caught.value.job_id == live
    assert await kinds(connection) == ["a", "b"]


async def test_an_argument_that_is_refused_here_leaves_the_transaction_as_it_is(
    producer: Producer, connection: Connection
) -> None:
    async with producer.transaction():
        for bad in ({"priority": 101}, {"delay": -1}, {"max_attempts": "3"}):
            with pytest.raises(InvalidArgumentError):
                await producer("enqueue", "a", **bad)
        with pytest.raises(InvalidArgumentError, match="of type str: use NewJob"):
            await producer("enqueue_many", ["a"])
        await producer("enqueue", "b")

    assert await kinds(connection) == ["b"]


async def test_a_full_queue_takes_none_of_many(
    producer: Producer, connection: Connection
) -> None:
    await set_queue(connection, "full", max_pending=1)
    many = [NewJob("a", queue="full"), NewJob("a", queue="full")]
    with pytest.raises(QueueFullError, match=r"queue full is full.*Try again"):
        await producer("enqueue_many", many)


REFUSED: list[tuple[tuple[Any, ...], type[PgwakeError], str]] = [
    (("enqueue", ""), InvalidArgumentError, "jobs kind is 1 to 128 bytes"),
    (("retry", 1), InvalidArgumentError, "job 1 is pending. Only failed"),
    (("get_job", ABSENT), NoSuchJobError, "job -1"),
    (("cancel", 2**62), NoSuchJobError, f"job {2**62}"),
    (
        ("copy", [NewJob("a", unique_key="u", on_conflict="raise")]),
        DuplicateJobError,
        "unique",
    ),
    (("copy", [NewJob("a", max_attempts=0)]), InvalidArgumentError, "1 to 10000"),
    (
        ("enqueue_many", [NewJob("a", max_attempts=2**40)]),
        InvalidArgumentError,
        "out of range",
    ),
    (("enqueue", "a", {"a": "x" * (1 << 20)}), InvalidArgumentError, "1 mib"),
]


async def test_what_the_database_refuses_is_an_error_that_says_what_to_do(
    producer: Producer,
) -> None:
    async with producer.transaction():
        await producer("enqueue", "a", unique_key="u")
    for call, error, said in REFUSED:
        with pytest.raises(error) as caught:
            async with producer.transaction():
                await producer(*call)

        assert said in str(caught.value), call
        assert caught.value.__cause__ is not None, call


async def test_a_job_can_be_read_cancelled_and_retried(producer: Producer) -> None:
    async with producer.transaction():
        job_id = await producer("enqueue", "a", {"n": 1})
        assert await producer("cancel", job_id) == "cancelled"
        cancelled = await producer("get_job", job_id)
        await producer("retry", job_id)
        assert (await producer("get_job", job_id))["status"] == "pending"

    assert (cancelled["status"], cancelled["payload"]) == ("cancelled", {"n": 1})
    assert cancelled["finished_at"].utcoffset() is not None


async def test_what_stands_in_the_queues_can_be_counted(producer: Producer) -> None:
    async with producer.transaction():
        await producer("enqueue_many", [NewJob("a"), NewJob("a", queue="other")])
    async with producer.transaction():
        both, (other,) = await producer("stats"), await producer("stats", "other")

    assert {row["queue"]: row["pending_count"] for row in both} == {
        "default": 1,
        "other": 1,
    }
    assert other["oldest_pending_age"] >= timedelta(0)


async def test_a_commit_wakes_a_worker_that_sleeps(
    producer: Producer, connection: Connection, database: str
) -> None:
    async with embedded(database, quick()) as worker:
        for job_id, method in enumerate(("enqueue", "copy"), 1):
            what: Any = "quick" if method == "enqueue" else [NewJob("quick")]
            await asleep(worker)
            async with producer.transaction():
                await producer(method, what)

            assert (await ended(connection, job_id))["status"] == "completed", method


async def test_a_job_that_has_ended_is_waited_for(
    producer: Producer, connection: Connection
) -> None:
    async with producer.transaction():
        job_id = await producer("enqueue", "a", queue="q")
    await connection.fetchval("select pgwake.cancel_job($1)", job_id)
    async with producer.transaction():
        end = await producer("wait_for", job_id, timeout=10)

    assert end == Ended(job_id, "q", "a", "cancelled", None, [])


async def test_a_wait_for_a_job_of_the_same_transaction_is_refused(
    producer: Producer,
) -> None:
    async with producer.transaction():
        async with producer.transaction():
            job_id = await producer("enqueue", "a")
        with pytest.raises(InvalidArgumentError, match="wait after it"):
            await producer("wait_for", job_id, timeout=10)


async def test_a_wait_has_an_end(producer: Producer) -> None:
    async with producer.transaction():
        job_id = await producer("enqueue", "a")
    async with producer.transaction():
        with pytest.raises(TimeoutError, match=f"job {job_id} has not ended"):
            await producer("wait_for", job_id, timeout=0)
        with pytest.raises(NoSuchJobError):
            await producer("wait_for", ABSENT)


async def test_on_a_pool_each_call_is_a_transaction_of_its_own(
    pool: Producer, connection: Connection
) -> None:
    await pool("enqueue", "a", unique_key="u")
    assert await kinds(connection) == ["a"]
    await pool("enqueue_many", [NewJob("b")])
    await pool("copy", [NewJob("c")])
    with pytest.raises(DuplicateJobError):
        await pool("enqueue", "a", unique_key="u", on_conflict="raise")
    await pool("enqueue", "d")

    assert await kinds(connection) == ["a", "b", "c", "d"]
    assert await pool("cancel", 1) == "cancelled"
    assert (await pool("wait_for", 1)).status == "cancelled"

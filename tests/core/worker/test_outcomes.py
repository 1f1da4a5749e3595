"""What a handler raises to say itself what becomes of its job."""

import asyncio
import math
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from structlog.testing import capture_logs

from pgwake import Discard, Registry, Retry, Snooze, Worker
from support import Connection, wait_for
from support.sql.helpers import insert, job
from support.worker.helpers import Row, Samples, embedded, ended, in_status, reasons

Raise = Callable[[], BaseException]


def registry_that_raises(how: str, make: Raise, **options: Any) -> Registry:
    """A registry with one handler, "raise", on the loop or in a thread."""
    registry = Registry()
    if how == "async":

        @registry.job("raise", **options)
        async def raise_it() -> None:
            raise make()

    else:

        @registry.job("raise", **options)
        def raise_it_in_a_thread() -> None:
            raise make()

    return registry


def with_cause(error: BaseException) -> BaseException:
    error.__cause__ = ValueError("the cause")
    return error


EVERYWHERE = pytest.mark.parametrize("how", ["async", "thread"])


async def seconds_until_due(connection: Connection, job_id: int) -> float:
    seconds: float = await connection.fetchval(
        "select extract(epoch from run_at - now())::float8 from pgwake.jobs"
        " where id = $1",
        job_id,
    )
    return seconds


async def released(connection: Connection, job_id: int, worker: Worker) -> Row:
    """Wait until a job has been given back; its row."""

    async def is_counted() -> bool:
        return released_total(worker, "snooze") > 0

    await in_status(connection, job_id, "pending")
    await wait_for(is_counted)
    return await job(connection, job_id)


def released_total(worker: Worker, reason: str) -> float:
    samples = Samples(worker.metrics.render())
    return samples.total("pgwake_jobs_released", reason=reason)


@EVERYWHERE
@pytest.mark.parametrize("delay", [1000, 1000.0, timedelta(seconds=1000)])
async def test_a_snoozed_job_is_put_off_and_its_attempt_not_counted(
    connection: Connection, database: str, how: str, delay: float | timedelta
) -> None:
    registry = registry_that_raises(how, lambda: Snooze(delay), max_attempts=1)
    job_id = await insert(connection, "raise")
    with capture_logs() as lines:
        async with embedded(database, registry) as worker:
            row = await released(connection, job_id, worker)
    left = await seconds_until_due(connection, job_id)

    assert (row["attempt"], row["errors"], row["bounce_count"]) == (0, None, 0)
    assert 900 < left <= 1000
    assert released_total(worker, "snooze") == 1
    (line,) = [line for line in lines if line["event"] == "job released"]
    assert (line["reason"], line["delay_s"]) == ("snooze", 1000)


async def test_a_job_that_snoozes_again_and_again_ends_when_it_wants_to(
    connection: Connection, database: str
) -> None:
    registry = Registry()
    rounds = iter(range(100))

    @registry.job("wait", max_attempts=1)
    async def wait() -> int:
        count = next(rounds)
        if count < 10:
            raise Snooze(0)
        return count

    job_id = await insert(connection, "wait")
    async with embedded(database, registry):
        row = await ended(connection, job_id)

    assert (row["status"], row["result"], row["attempt"]) == ("completed", 10, 1)


async def test_many_snoozes_at_once_keep_each_their_delay(
    connection: Connection, database: str
) -> None:
    registry = Registry()

    @registry.job("wait")
    async def wait(seconds: int) -> None:
        raise Snooze(seconds)

    await connection.execute(
        "insert into pgwake.jobs (kind, payload)"
        " select 'wait', jsonb_build_object('seconds', 1000 + n * 100)"
        " from generate_series(1, 200) as n"
    )
    async with embedded(database, registry, queues="default:50") as worker:

        async def all_are_put_off() -> bool:
            return released_total(worker, "snooze") == 200

        await wait_for(all_are_put_off, 10)
    off = await connection.fetchval(
        "select max(abs(extract(epoch from run_at - now())"
        " - (payload->>'seconds')::int)) from pgwake.jobs"
    )
    assert off < 60


@EVERYWHERE
async def test_a_retry_is_a_failed_attempt_with_a_delay_of_its_own(
    connection: Connection, database: str, how: str
) -> None:
    registry = registry_that_raises(how, lambda: Retry(delay=1000, reason="busy"))
    job_id = await insert(connection, "raise")
    async with embedded(database, registry) as worker:
        row = await in_status(connection, job_id, "running")

        async def is_counted() -> bool:
            samples = Samples(worker.metrics.render())
            return samples.total("pgwake_jobs_retried", kind="raise") == 1

        await wait_for(is_counted)
        row = await job(connection, job_id)

    assert (row["status"], row["attempt"], reasons(row)) == ("pending", 1, ["failed"])
    assert row["errors"][0]["message"] == "busy"
    assert 900 < await seconds_until_due(connection, job_id) <= 1000


@EVERYWHERE
async def test_a_retry_without_attempts_left_is_a_dead_letter(
    connection: Connection, database: str, how: str
) -> None:
    registry = registry_that_raises(how, lambda: Retry(0), max_attempts=3)
    job_id = await insert(connection, "raise", max_attempts=3)
    async with embedded(database, registry):
        row = await ended(connection, job_id)

    assert (row["status"], row["attempt"]) == ("failed", 3)
    assert [error["message"] for error in row["errors"]] == ["Retry"] * 3


async def test_a_retry_without_a_delay_waits_for_the_backoff(
    connection: Connection, database: str
) -> None:
    await connection.execute(
        "insert into pgwake.queues (name, backoff_base, backoff_cap, backoff_jitter)"
        " values ('default', '1 hour', '1 hour', 0)"
    )
    registry = registry_that_raises("async", Retry)
    job_id = await insert(connection, "raise")
    async with embedded(database, registry):

        async def has_failed() -> bool:
            return (await job(connection, job_id))["errors"] is not None

        await wait_for(has_failed)

    assert 3500 < await seconds_until_due(connection, job_id) <= 3600


@EVERYWHERE
async def test_a_discarded_job_is_a_dead_letter_at_its_first_attempt(
    connection: Connection, database: str, how: str
) -> None:
    registry = registry_that_raises(how, lambda: Discard("order was withdrawn"))
    job_id = await insert(connection, "raise")
    async with embedded(database, registry) as worker:
        row = await ended(connection, job_id)
    samples = Samples(worker.metrics.render())

    assert (row["status"], row["attempt"]) == ("failed", 1)
    assert reasons(row) == ["discarded"]
    assert row["errors"][0]["message"] == "order was withdrawn"
    assert samples.total("pgwake_jobs_failed", kind="raise") == 1


@EVERYWHERE
@pytest.mark.parametrize("kind", [Retry, Discard])
async def test_without_a_reason_it_is_that_of_its_cause(
    connection: Connection, database: str, how: str, kind: type[Retry | Discard]
) -> None:
    def fall() -> None:
        raise ValueError("the cause")

    def make() -> BaseException:
        error = kind()
        try:
            fall()
        except ValueError as cause:
            error.__cause__ = cause
        return error

    registry = registry_that_raises(how, make, max_attempts=1)
    job_id = await insert(connection, "raise", max_attempts=1)
    async with embedded(database, registry):
        row = await ended(connection, job_id)

    (error,) = row["errors"]
    assert error["message"] == "ValueError: the cause"
    assert "in make" in error["traceback"]


WRAPPED: dict[str, Callable[[BaseException], BaseException]] = {
    "with a cause": with_cause,
    "alone in a group": lambda error: BaseExceptionGroup("g", [error]),
    "in a group in a group": lambda error: BaseExceptionGroup(
        "g", [BaseExceptionGroup("h", [error])]
    ),
}


@EVERYWHERE
@pytest.mark.parametrize("wrap", WRAPPED.values(), ids=list(WRAPPED))
async def test_it_counts_wherever_it_comes_from(
    connection: Connection,
    database: str,
    how: str,
    wrap: Callable[[BaseException], BaseException],
) -> None:
    registry = registry_that_raises(how, lambda: wrap(Discard("enough")))
    job_id = await insert(connection, "raise")
    async with embedded(database, registry):
        row = await ended(connection, job_id)

    assert (reasons(row), row["errors"][0]["message"]) == (["discarded"], "enough")


async def test_a_task_of_the_handlers_own_can_raise_it(
    connection: Connection, database: str
) -> None:
    registry = Registry()

    async def part() -> None:
        raise Discard("enough")

    @registry.job("parts")
    async def parts() -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(part())
            tasks.create_task(asyncio.sleep(3600))

    job_id = await insert(connection, "parts")
    async with embedded(database, registry):
        row = await ended(connection, job_id)

    assert reasons(row) == ["discarded"]


@pytest.mark.parametrize(
    "error",
    [
        BaseExceptionGroup("two", [Snooze(1), ValueError("x")]),
        BaseExceptionGroup("two", [Snooze(1), Discard("x")]),
    ],
    ids=["an error too", "two of them"],
)
async def test_in_a_group_with_others_it_is_a_failed_attempt(
    connection: Connection, database: str, error: BaseException
) -> None:
    registry = registry_that_raises("async", lambda: error, max_attempts=1)
    job_id = await insert(connection, "raise", max_attempts=1)
    async with embedded(database, registry):
        row = await ended(connection, job_id)

    assert (row["status"], reasons(row)) == ("failed", ["failed"])
    assert "two" in row["errors"][0]["message"]


BAD_DELAYS: list[Any] = [-1, -0.001, math.nan, math.inf, -math.inf, 2.0**63, 1e300]
BAD_DELAYS += [
    timedelta(days=-1),
    timedelta(days=3651),
    timedelta.max,
    "soon",
    None,
    [],
]


@pytest.mark.parametrize("delay", BAD_DELAYS, ids=repr)
@pytest.mark.parametrize("kind", [Snooze, Retry])
async def test_a_delay_that_can_not_be_meant_is_a_failed_attempt_that_says_so(
    connection: Connection, database: str, kind: Any, delay: Any
) -> None:
    if (kind, delay) == (Retry, None):
        return  # its default
    registry = registry_that_raises("async", lambda: kind(delay))

    @registry.job("next")
    async def next_one() -> None: ...

    job_id = await insert(connection, "raise", max_attempts=1)
    next_id = await insert(connection, "next")
    async with embedded(database, registry, queues="default:1"):
        row = await ended(connection, job_id)
        assert (await ended(connection, next_id))["status"] == "completed"

    assert (row["status"], reasons(row)) == ("failed", ["invalid"])
    message = row["errors"][0]["message"]
    assert f"{kind.__name__} with a delay of {delay!r}" in message
    assert "from 0 to 3650 days" in message


class Later(Snooze):
    """A subclass that says its delay in its own way."""

    delay: Any = 1000

    def __init__(self) -> None:
        Exception.__init__(self, "later")


class Nonsense(Later):
    delay: Any = "soon"


async def test_a_subclass_may_say_its_delay_itself(
    connection: Connection, database: str
) -> None:
    registry = registry_that_raises("async", Later)
    job_id = await insert(connection, "raise")
    async with embedded(database, registry) as worker:
        await released(connection, job_id, worker)

    assert 900 < await seconds_until_due(connection, job_id) <= 1000


async def test_a_subclass_that_says_nonsense_fails_its_own_attempt_only(
    connection: Connection, database: str
) -> None:
    registry = registry_that_raises("async", Nonsense)
    job_id = await insert(connection, "raise", max_attempts=1)
    async with embedded(database, registry):
        row = await ended(connection, job_id)

    assert reasons(row) == ["invalid"]
    assert "Nonsense with a delay of 'soon'" in row["errors"][0]["message"]


async def test_what_a_handler_raises_after_its_time_limit_does_not_count(
    connection: Connection, database: str
) -> None:
    registry = Registry()

    @registry.job("late", timeout=0.1)
    async def late() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            raise Snooze(0)

    job_id = await insert(connection, "late", max_attempts=1)
    async with embedded(database, registry):
        row = await ended(connection, job_id)

    assert (row["status"], reasons(row)) == ("failed", ["timeout"])

"""What a handler raises to say itself what becomes of its job."""

import asyncio
import math
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from structlog.testing import capture_logs

from pgwake import Discard, Registry, Retry, Snooze, Worker
from support import Connection, wait_for
from support.sql.helpers import insert, job
from support.worker.helpers import embedded, ended, reasons, run
from support.worker.metrics import Samples


def raising(how: str, make: Callable[[], BaseException]) -> Callable[..., Any]:
    """A handler that raises, on the loop or in a thread."""
    if how == "async":

        async def raise_it() -> None:
            raise make()

    else:

        def raise_it() -> None:  # type: ignore[misc]
            raise make()

    return raise_it


def registry_that_raises(
    how: str, make: Callable[[], BaseException], **options: Any
) -> Registry:
    """A registry with one handler, "raise", that does so."""
    registry = Registry()
    registry.job("raise", **options)(raising(how, make))
    return registry


EVERYWHERE = pytest.mark.parametrize("how", ["async", "thread"])


async def seconds_until_due(connection: Connection, job_id: int) -> float:
    seconds: float = await connection.fetchval(
        "select extract(epoch from run_at - now())::float8 from pgwake.jobs"
        " where id = $1",
        job_id,
    )
    return seconds


def released_total(worker: Worker, reason: str) -> float:
    samples = Samples(worker.metrics.render())
    return samples.total("pgwake_jobs_released", reason=reason)


@EVERYWHERE
async def test_a_snoozed_job_is_put_off_and_its_attempt_not_counted(
    connection: Connection, database: str, how: str
) -> None:
    delays: Iterator[Any] = iter([1000, 1000.0, timedelta(seconds=1000)])
    registry = registry_that_raises(how, lambda: Snooze(next(delays)), max_attempts=1)
    ids = [await insert(connection, "raise") for _ in range(3)]
    with capture_logs() as lines:
        async with embedded(database, registry) as worker:
            await wait_for(lambda: released_total(worker, "snooze") == 3)

    for job_id in ids:
        row = await job(connection, job_id)
        assert row["status"] == "pending"
        assert (row["attempt"], row["errors"], row["bounce_count"]) == (0, None, 0)
        assert 900 < await seconds_until_due(connection, job_id) <= 1000
    told = [line for line in lines if line["event"] == "job released"]
    assert [(one["reason"], one["delay_s"]) for one in told] == [("snooze", 1000)] * 3


async def test_a_job_that_snoozes_again_and_again_ends_when_it_wants_to(
    connection: Connection, database: str
) -> None:
    rounds = iter(range(100))

    async def wait() -> int:
        count = next(rounds)
        if count < 10:
            raise Snooze(0)
        return count

    row = await run(connection, database, wait, max_attempts=1)

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
        await wait_for(lambda: released_total(worker, "snooze") == 200)
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
    handler = raising(how, lambda: Retry(0))
    row = await run(connection, database, handler, max_attempts=3)

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
    def make() -> BaseException:
        error = kind()
        try:
            raise ValueError("the cause")  # noqa: TRY301
        except ValueError as cause:
            error.__cause__ = cause
        return error

    row = await run(connection, database, raising(how, make), max_attempts=1)

    (error,) = row["errors"]
    assert error["message"] == "ValueError: the cause"
    assert "in make" in error["traceback"]


@EVERYWHERE
async def test_it_counts_wherever_it_comes_from(
    connection: Connection, database: str, how: str
) -> None:
    with_cause = Discard("enough")
    with_cause.__cause__ = ValueError("the cause")
    group = BaseExceptionGroup("g", [Discard("enough")])
    errors = [with_cause, group, BaseExceptionGroup("h", [group])]
    left = iter(errors)
    registry = registry_that_raises(how, lambda: next(left))
    ids = [await insert(connection, "raise") for _ in errors]
    async with embedded(database, registry):
        rows = [await ended(connection, job_id) for job_id in ids]

    for row in rows:
        assert (reasons(row), row["errors"][0]["message"]) == (["discarded"], "enough")


async def test_a_task_of_the_handlers_own_can_raise_it(
    connection: Connection, database: str
) -> None:
    async def part() -> None:
        raise Discard("enough")

    async def parts() -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(part())
            tasks.create_task(asyncio.sleep(3600))

    row = await run(connection, database, parts)

    assert reasons(row) == ["discarded"]


@pytest.mark.parametrize("other", [ValueError("x"), Discard("x")])
async def test_in_a_group_with_others_it_is_a_failed_attempt(
    connection: Connection, database: str, other: Exception
) -> None:
    handler = raising("async", lambda: BaseExceptionGroup("two", [Snooze(1), other]))
    row = await run(connection, database, handler, max_attempts=1)

    assert (row["status"], reasons(row)) == ("failed", ["failed"])
    assert "two" in row["errors"][0]["message"]


BAD_DELAYS: list[Any] = [-1, -0.001, math.nan, math.inf, -math.inf, 2.0**63, 1e300]
BAD_DELAYS += [timedelta(days=-1), timedelta(days=3651), timedelta.max, "soon", []]


@pytest.mark.parametrize("kind", [Snooze, Retry])
async def test_a_delay_that_can_not_be_meant_is_a_failed_attempt_that_says_so(
    connection: Connection, database: str, kind: Any
) -> None:
    delays = BAD_DELAYS + ([None] if kind is Snooze else [])  # Retry's default
    left = iter(delays)
    registry = registry_that_raises("async", lambda: kind(next(left)))
    ids = [await insert(connection, "raise", max_attempts=1) for _ in delays]
    async with embedded(database, registry, queues="default:1"):
        rows = [await ended(connection, job_id) for job_id in ids]

    for row, delay in zip(rows, delays, strict=True):
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
        await wait_for(lambda: released_total(worker, "snooze") == 1)

    assert 900 < await seconds_until_due(connection, job_id) <= 1000


async def test_a_subclass_that_says_nonsense_fails_its_own_attempt_only(
    connection: Connection, database: str
) -> None:
    handler = raising("async", Nonsense)
    row = await run(connection, database, handler, max_attempts=1)

    assert reasons(row) == ["invalid"]
    assert "Nonsense with a delay of 'soon'" in row["errors"][0]["message"]

"""A handler's transaction: its writes and the completion count together, once."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg
import pytest
from structlog.testing import capture_logs

from pgwake import (
    ConfigurationError,
    Discard,
    Job,
    LeaseLostError,
    Registry,
    Retry,
    Snooze,
)
from support import Connect, Connection, wait_for
from support.sql.helpers import call, insert, job, status, sweep
from support.worker.balance import ADD, balance, create_account, run, total
from support.worker.helpers import embedded, ended, reasons


@pytest.fixture(autouse=True)
async def account(connection: Connection) -> None:
    """An account that handlers pay into."""
    await create_account(connection)


async def test_writes_result_and_the_next_job_are_committed_with_the_completion(
    connection: Connection, connect: Connect, database: str
) -> None:
    other = await connect()
    registry = Registry()
    seen: list[tuple[int, str]] = []

    @registry.job("pay")
    async def pay(job: Job) -> None:
        async with job.transaction() as transaction:
            await transaction.execute(ADD)
            await transaction.execute("select pgwake.enqueue('tell')")
            job.set_result({"paid": 1})
            seen.append((await balance(other), await status(other, job.id)))
        seen.append((await balance(other), await status(other, job.id)))

    @registry.job("tell")
    async def tell() -> None: ...

    job_id = await insert(connection, "pay")
    with capture_logs() as lines:
        async with embedded(database, registry) as worker:
            row = await ended(connection, job_id)
            told = await connection.fetchval(
                "select id from pgwake.jobs where kind = 'tell'"
            )
            assert (await ended(connection, told))["status"] == "completed"

            await wait_for(lambda: total(worker, "jobs_completed") == 2)
            assert total(worker, "leases_lost") == 0

    assert seen == [(0, "running"), (1, "completed")]
    assert (row["result"], row["attempt"], row["errors"]) == ({"paid": 1}, 1, None)
    completed = [line for line in lines if line["event"] == "job completed"]
    assert sorted(line["job"] for line in completed) == [job_id, told]


@pytest.mark.parametrize(
    ("make", "end", "why"),
    [
        (lambda: ValueError("no"), "failed", ["failed"]),
        (lambda: Discard("no"), "failed", ["discarded"]),
        (lambda: Retry(1000), "pending", ["failed"]),
        (lambda: Snooze(1000), "pending", []),
    ],
)
async def test_an_exception_in_the_block_rolls_back_and_counts_as_it_would_outside(
    connection: Connection,
    database: str,
    make: Callable[[], Exception],
    end: str,
    why: list[str],
) -> None:
    registry = Registry()

    @registry.job("pay")
    async def pay(job: Job) -> None:
        async with job.transaction() as transaction:
            await transaction.execute(ADD)
            await transaction.execute("select pgwake.enqueue('tell')")
            raise make()

    job_id = await insert(connection, "pay", max_attempts=1 if end == "failed" else 2)
    async with embedded(database, registry) as worker:

        async def is_over() -> bool:
            names = ("jobs_failed", "jobs_retried", "jobs_released")
            return sum(total(worker, name) for name in names) == 1

        await wait_for(is_over)
    row = await job(connection, job_id)
    assert (row["status"], reasons(row)) == (end, why)
    assert await balance(connection) == 0
    assert await connection.fetchval("select count(*) from pgwake.jobs") == 1


async def test_a_handler_may_catch_it_and_be_completed_as_usual(
    connection: Connection, database: str
) -> None:
    async def pay(job: Job) -> str:
        try:
            async with job.transaction() as transaction:
                await transaction.execute(ADD)
                await transaction.execute("select 1/0")
        except asyncpg.DivisionByZeroError:
            return "not today"
        return "unreachable"

    row, _ = await run(connection, database, pay)
    assert (row["status"], row["result"]) == ("completed", "not today")
    assert await balance(connection) == 0


async def test_a_handler_may_try_the_block_again(
    connection: Connection, connect: Connect, database: str
) -> None:
    other = await connect()

    async def pay(job: Job) -> None:
        for attempt in range(3):
            try:
                async with job.transaction("serializable") as transaction:
                    await transaction.fetch("select balance from account")
                    if attempt < 2:
                        await other.execute(ADD)
                    await transaction.execute(ADD)
            except asyncpg.SerializationError:
                continue
            return

    row, _ = await run(connection, database, pay)
    assert (row["status"], row["errors"]) == ("completed", None)
    assert await balance(connection) == 3


async def test_a_lease_that_was_lost_meanwhile_rolls_everything_back(
    connection: Connection, connect: Connect, database: str
) -> None:
    other = await connect()
    registry = Registry()
    errors: list[BaseException] = []

    @registry.job("pay")
    async def pay(job: Job) -> None:
        try:
            async with job.transaction() as transaction:
                await transaction.execute(ADD)
                await transaction.execute("select pgwake.enqueue('tell')")
                await call(other, "pause_queue", queue="default")  # not run again
                assert await sweep(other, "1 hour") == 1
        except LeaseLostError as error:
            errors.append(error)
            raise

    job_id = await insert(connection, "pay")
    with capture_logs() as lines:
        async with embedded(database, registry) as worker:
            await wait_for(lambda: total(worker, "leases_lost") == 1)
            assert total(worker, "jobs_completed") == 0

    assert len(errors) == 1
    assert [line["event"] for line in lines if line.get("kind") == "pay"][-1] == (
        "lease lost, end refused"
    )
    row = await job(connection, job_id)
    assert (row["status"], row["crash_count"]) == ("pending", 1)
    assert await balance(connection) == 0
    assert await connection.fetchval("select count(*) from pgwake.jobs") == 1


async def test_a_handler_that_catches_the_loss_is_not_completed_either(
    connection: Connection, connect: Connect, database: str
) -> None:
    other = await connect()

    async def pay(job: Job) -> str:
        try:
            async with job.transaction() as transaction:
                await transaction.execute(ADD)
                await call(other, "force_fail_job", job_id=job.id, reason="a test")
        except LeaseLostError:
            return "as if all were well"
        return "unreachable"

    row, lines = await run(connection, database, pay)
    assert (row["status"], reasons(row)) == ("failed", ["forced"])
    assert "lease lost, end refused" in [line["event"] for line in lines]
    assert await balance(connection) == 0


async def test_a_loss_that_renewal_hears_of_cancels_the_block(
    connection: Connection, connect: Connect, database: str
) -> None:
    other = await connect()
    registry = Registry()
    stopped: list[str | None] = []

    @registry.job("pay")
    async def pay(job: Job) -> None:
        try:
            async with job.transaction() as transaction:
                await transaction.execute(ADD)
                await call(other, "force_fail_job", job_id=job.id, reason="a test")
                await asyncio.sleep(10)
        finally:
            stopped.append(job.stop_reason)

    await insert(connection, "pay")
    async with embedded(database, registry, lease=1) as worker:
        await wait_for(lambda: total(worker, "leases_lost") == 1)
    assert stopped == ["lease_lost"]
    assert await balance(connection) == 0


async def test_a_second_transaction_is_refused(
    connection: Connection, database: str
) -> None:
    refusals: list[str] = []

    async def pay(job: Job) -> None:
        async with job.transaction() as transaction:
            await transaction.execute(ADD)
            try:
                async with job.transaction():
                    pass
            except ConfigurationError as error:
                refusals.append(str(error))
        try:
            async with job.transaction():
                pass
        except ConfigurationError as error:
            refusals.append(str(error))

    row, _ = await run(connection, database, pay)
    assert row["status"] == "completed"
    assert "is in a transaction" in refusals[0]
    assert "is completed" in refusals[1]
    assert await balance(connection) == 1


@pytest.mark.parametrize("what", ["transaction", "parent_results"])
async def test_a_plain_handler_is_told_what_to_do_instead(
    connection: Connection, database: str, what: str
) -> None:
    def pay(job: Job) -> None:
        if what == "transaction":
            job.transaction()
        else:
            asyncio.run(job.parent_results())

    row, _ = await run(connection, database, pay)
    (error,) = row["errors"]
    assert error["message"].startswith("ConfigurationError: ")
    advice = "pgwake.complete_job" if what == "transaction" else "get_parent_results"
    assert advice in error["message"]


async def test_outside_of_a_block_there_is_no_result_to_set(
    connection: Connection, database: str
) -> None:
    async def pay(job: Job) -> None:
        job.set_result(1)

    row, _ = await run(connection, database, pay)
    assert row["status"] == "failed"
    assert "return the result" in row["errors"][0]["message"]


async def test_what_the_handler_returns_after_the_block_is_ignored_with_a_warning(
    connection: Connection, database: str
) -> None:
    async def pay(job: Job) -> str:
        async with job.transaction() as transaction:
            await transaction.execute(ADD)
        return "too late"

    row, lines = await run(connection, database, pay)
    assert (row["status"], row["result"]) == ("completed", None)
    (line,) = [line for line in lines if line["event"].startswith("result ignored")]
    assert (line["log_level"], line["job"]) == ("warning", row["id"])


async def test_what_the_handler_raises_after_the_block_is_logged_and_fails_nothing(
    connection: Connection, database: str
) -> None:
    async def pay(job: Job) -> None:
        async with job.transaction() as transaction:
            await transaction.execute(ADD)
        raise ValueError("too late")

    row, lines = await run(connection, database, pay)
    assert (row["status"], row["errors"]) == ("completed", None)
    (line,) = [line for line in lines if line["log_level"] == "error"]
    assert line["event"] == "handler failed after it had completed its job"
    assert (line["job"], line["error"]) == (row["id"], "ValueError: too late")
    assert "test_transaction.py" in line["traceback"]


async def test_after_the_block_the_handler_goes_on_beyond_every_renewal(
    connection: Connection, database: str
) -> None:
    registry = Registry()
    went_on = asyncio.Event()

    @registry.job("pay")
    async def pay(job: Job) -> None:
        async with job.transaction() as transaction:
            await transaction.execute(ADD)
        await asyncio.sleep(1.5)  # six renewals
        went_on.set()

    job_id = await insert(connection, "pay")
    async with embedded(database, registry, lease=1) as worker:
        row = await ended(connection, job_id)
        await went_on.wait()
        assert (total(worker, "jobs_completed"), total(worker, "leases_lost")) == (1, 0)
    assert row["status"] == "completed"


@pytest.mark.parametrize("holds_on", [False, True])
async def test_a_stop_waits_for_what_comes_after_the_block_and_takes_nothing_back(
    connection: Connection, database: str, holds_on: bool
) -> None:
    registry = Registry()
    stopped: list[str | None] = []

    @registry.job("pay")
    async def pay(job: Job) -> None:
        async with job.transaction() as transaction:
            await transaction.execute(ADD)
        try:
            await asyncio.sleep(60)
        finally:
            stopped.append(job.stop_reason)
            if holds_on:
                await asyncio.sleep(60)

    job_id = await insert(connection, "pay")
    with capture_logs() as lines:
        settings = {"grace": 0.2, "cancel_grace": 0.2}
        async with embedded(database, registry, **settings) as worker:
            row = await ended(connection, job_id)
    assert (row["status"], row["bounce_count"]) == ("completed", 0)
    assert stopped == ["shutdown"]
    assert total(worker, "leases_lost") == total(worker, "jobs_released") == 0
    told = [line for line in lines if line["event"].startswith("handler stopped")]
    assert [line["reason"] for line in told] == ["shutdown"] * (not holds_on)


@pytest.mark.parametrize("swallows", [False, True])
@pytest.mark.parametrize("why", ["cancelled", "timeout", "shutdown"])
async def test_a_job_that_is_stopped_in_the_block_is_rolled_back(
    connection: Connection, database: str, why: str, swallows: bool
) -> None:
    registry = Registry()
    begun = asyncio.Event()

    @registry.job("pay", max_attempts=1, timeout=0.5 if why == "timeout" else None)
    async def pay(job: Job) -> None:
        async with job.transaction() as transaction:
            await transaction.execute(ADD)
            begun.set()
            if not swallows:
                await transaction.execute("select pg_sleep(10)")
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(10)

    job_id = await insert(connection, "pay")
    async with embedded(database, registry, grace=0) as worker:
        await begun.wait()
        if why == "cancelled":
            await call(connection, "cancel_job", job_id=job_id)
        if why != "shutdown":
            await ended(connection, job_id)
    row = await job(connection, job_id)
    left = {"cancelled": "cancelled", "timeout": "failed", "shutdown": "pending"}
    assert row["status"] == left[why]
    assert total(worker, "jobs_completed") == 0
    assert await balance(connection) == 0


async def no_json(job: Job, _: Connection) -> None:
    job.set_result(float("nan"))


async def too_large(job: Job, _: Connection) -> None:
    job.set_result("x" * 1048576)


async def end_it_oneself(_: Job, transaction: Connection) -> None:
    await transaction.execute("rollback")


async def break_at_the_commit(_: Job, transaction: Connection) -> None:
    await transaction.execute(
        "create temporary table once (n int unique deferrable initially deferred);"
        " insert into once values (1), (1)"
    )


async def hide_an_error(_: Job, transaction: Connection) -> None:
    with contextlib.suppress(asyncpg.DivisionByZeroError):
        await transaction.execute("select 1/0")


@pytest.mark.parametrize(
    ("do", "reason", "said"),
    [
        (no_json, "invalid", ""),
        (too_large, "invalid", "jobs_result_is_at_most_1_mib"),
        (end_it_oneself, "failed", "ended its transaction itself"),
        (break_at_the_commit, "failed", "UniqueViolationError"),
        (hide_an_error, "failed", "current transaction is aborted"),
    ],
)
async def test_what_can_not_be_committed_fails_the_attempt_and_is_rolled_back(
    connection: Connection,
    database: str,
    do: Callable[[Job, Any], Awaitable[None]],
    reason: str,
    said: str,
) -> None:
    async def pay(job: Job) -> None:
        async with job.transaction() as transaction:
            await transaction.execute(ADD)
            await do(job, transaction)

    row, _ = await run(connection, database, pay)
    assert (row["status"], reasons(row)) == ("failed", [reason])
    assert said in row["errors"][0]["message"]
    assert await balance(connection) == 0


async def test_a_serialization_failure_is_a_failed_attempt(
    connection: Connection, connect: Connect, database: str
) -> None:
    other = await connect()

    async def pay(job: Job) -> None:
        async with job.transaction("repeatable_read") as transaction:
            await transaction.fetch("select balance from account")
            await other.execute(ADD)
            await transaction.execute(ADD)

    row, _ = await run(connection, database, pay)
    assert (row["status"], reasons(row)) == ("failed", ["failed"])
    assert row["errors"][0]["message"].startswith("SerializationError")
    assert await balance(connection) == 1

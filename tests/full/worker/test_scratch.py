"""A tool's own queue on somebody's database: where it is refused, and what is left."""

import asyncio
import re

import asyncpg
import pytest

from pgwake.cli.bench.scratch import scratch_queue
from pgwake.errors import ConfigurationError
from support import PATIENCE, Connect, Connection, RoleUrl, wait_for
from support.sql.helpers import call, claim, insert, insert_many, pair, rows, running
from support.worker.helpers import settings
from support.worker.scratch import census

QUEUE = "pgwake_test"


async def litter(connection: Connection) -> None:
    """Make jobs of the queue in every state, and all else that a worker leaves."""
    await insert_many(connection, 8, queue=QUEUE)
    completed, failed, asked, _running = await claim(connection, 4, QUEUE)
    await call(connection, "complete_job", **pair(completed))
    await call(connection, "fail_job", **pair(failed), error="no", retryable=False)
    await call(connection, "cancel_job", job_id=asked["id"])
    await call(connection, "cancel_job", job_id=await insert(connection, queue=QUEUE))
    await call(connection, "pause_queue", queue=QUEUE)
    await call(connection, "declare_kinds", kinds={"scratch": {"timeout": 3}})
    await connection.execute(
        "select pgwake.report_worker('w', 'h', 1, array[$1], array['scratch'], '1')",
        QUEUE,
    )
    await call(connection, "maintain", step="fold")


async def test_nothing_of_it_is_left_and_nothing_else_is_touched(
    connection: Connection, database: str
) -> None:
    await running(connection)
    await insert(connection)
    before = await census(connection)

    async with scratch_queue(settings(database), QUEUE, ["scratch"]):
        await litter(connection)
        assert await census(connection) != before

    assert await census(connection) == before
    assert not await rows(connection, "get_queue_stats", queue=QUEUE)


async def test_what_an_earlier_run_has_left_is_removed_at_the_start(
    connection: Connection, database: str
) -> None:
    before = await census(connection)
    await litter(connection)
    assert await census(connection) != before
    await connection.execute("delete from pgwake.workers")

    async with scratch_queue(settings(database), QUEUE, ["scratch"]):
        assert await census(connection) == before


async def test_a_lost_session_does_not_keep_it_from_being_removed(
    connection: Connection, database: str
) -> None:
    before = await census(connection)
    async with scratch_queue(settings(database), QUEUE, ["scratch"]) as own:
        await litter(connection)
        await connection.execute(
            "select pg_terminate_backend($1)", own.get_server_pid()
        )

    assert await census(connection) == before


async def test_a_stop_while_it_is_removed_does_not_cut_that_short(
    connection: Connection, connect: Connect, database: str
) -> None:
    before = await census(connection)
    locker, observer = await connect(), await connect()
    lock = locker.transaction()

    async def use() -> None:
        async with scratch_queue(settings(database), QUEUE, ["scratch"]):
            await litter(connection)
            await lock.start()
            await locker.fetch("select from pgwake.jobs_live for update")

    async def is_waited_for() -> bool:
        blocked: bool = await observer.fetchval(
            "select exists (select from pg_stat_activity"
            " where $1 = any (pg_blocking_pids(pid)))",
            locker.get_server_pid(),
        )
        return blocked

    task = asyncio.create_task(use())
    await wait_for(is_waited_for, PATIENCE)
    task.cancel()
    await lock.rollback()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await census(connection) == before


async def test_a_member_of_the_admins_may_and_leaves_no_job(
    connection: Connection, role_url: RoleUrl
) -> None:
    async with scratch_queue(settings(role_url("app_admin")), QUEUE, ["scratch"]):
        await litter(connection)

    (stats,) = await rows(connection, "get_queue_stats", queue=QUEUE)
    assert stats["enqueued_total"] == 9
    for name in ("pending", "running", "completed", "failed", "cancelled"):
        assert stats[f"{name}_count"] == 0
    assert not await connection.fetchval("select count(*) from pgwake.jobs")
    assert not await connection.fetchval("select count(*) from pgwake.kinds")


async def refusal(url: str, **changes: object) -> str:
    with pytest.raises(ConfigurationError) as refused:
        async with scratch_queue(settings(url, **changes), QUEUE, ["scratch"]):
            pass
    message = str(refused.value)
    assert "\n" not in message
    return message


async def test_it_is_refused_in_production_unless_that_is_meant(
    connection: Connection, database: str
) -> None:
    await call(connection, "adopt", environment="production")
    assert "--in-production" in await refusal(database)
    assert "'staging'" in await refusal(database, environment="staging")

    async with scratch_queue(settings(database), QUEUE, [], in_production=True):
        pass


async def test_a_second_run_at_once_is_refused(database: str) -> None:
    async with scratch_queue(settings(database), QUEUE, []):
        assert "another run" in await refusal(database)


async def test_a_worker_that_an_earlier_run_has_left_is_named(
    connection: Connection, database: str
) -> None:
    await litter(connection)
    assert "a worker, w:" in await refusal(database)


@pytest.mark.parametrize("login", ["app_producer", "app_worker", "app_stranger"])
async def test_a_role_that_may_not_is_told_what_it_lacks(
    login: str, role_url: RoleUrl
) -> None:
    message = await refusal(role_url(login))
    assert re.search("may not .*purge|permission denied", message), message
    assert "pgwake_admin" in message


async def test_a_database_without_the_schema_is_told_of_init(
    connection: Connection, database: str
) -> None:
    await connection.execute("drop schema pgwake cascade")
    assert "`pgwake init`" in await refusal(database)


async def test_a_server_that_takes_no_writes_is_refused(
    connection: Connection, database: str
) -> None:
    name = database.rpartition("/")[2]
    await connection.execute(
        f"alter database {name} set default_transaction_read_only = on"
    )
    with pytest.raises(asyncpg.ReadOnlySQLTransactionError, match="is read-only"):
        async with scratch_queue(settings(database), QUEUE, []):
            pass


async def test_a_pooler_of_transactions_is_refused(transaction_pooler: str) -> None:
    assert "pooler" in await refusal(transaction_pooler)

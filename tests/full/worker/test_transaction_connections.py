"""The connections of handlers' transactions: few, each as new, and gone at the end."""

import asyncio
import json
from typing import Any

import asyncpg
import psycopg
import pytest

from pgwake import Job, Registry
from pgwake.engine.job_services import JobServices
from support import Connection, wait_for
from support.sql.helpers import insert
from support.worker.balance import ADD, balance, create_account, run, total
from support.worker.helpers import embedded, ended


@pytest.fixture(autouse=True)
async def account(connection: Connection) -> None:
    """An account that handlers pay into."""
    await create_account(connection)


@pytest.mark.parametrize(
    "isolation", ["read_committed", "repeatable_read", "serializable"]
)
async def test_the_isolation_level_is_the_one_asked_for(
    connection: Connection, database: str, isolation: Any
) -> None:
    async def pay(job: Job) -> None:
        async with job.transaction(isolation) as transaction:
            job.set_result(await transaction.fetchval("show transaction_isolation"))

    row, _ = await run(connection, database, pay)
    assert row["result"] == isolation.replace("_", " ")


async def test_an_unknown_isolation_level_is_refused(
    connection: Connection, database: str
) -> None:
    async def pay(job: Job) -> None:
        job.transaction("chaos")  # type: ignore[arg-type]

    row, _ = await run(connection, database, pay)
    assert "use one of read_committed, " in row["errors"][0]["message"]


async def test_nothing_that_a_block_sets_is_there_in_the_next(
    connection: Connection, database: str
) -> None:
    registry = Registry()
    look = (
        "select pg_backend_pid(), current_setting('work_mem'),"
        " current_setting('statement_timeout'), (select count(*) from pg_locks"
        " where locktype = 'advisory' and pid = pg_backend_pid()),"
        " to_regclass('pg_temp.mine') is null"
    )
    seen: list[tuple[Any, ...]] = []

    @registry.job("pay")
    async def pay(job: Job) -> None:
        async with job.transaction() as transaction:
            seen.append(tuple(*await transaction.fetch(look)))
            await transaction.execute("set work_mem = '123kB'")
            await transaction.execute("set statement_timeout = '1h'")
            await transaction.execute("select pg_advisory_lock(1)")
            await transaction.execute("create temporary table mine ()")

    async with embedded(database, registry):
        for _ in range(2):
            await ended(connection, await insert(connection, "pay"))
    assert seen[0] == seen[1]
    assert seen[0][2] == "15s"


SPOILS = (
    "deallocate all",
    "rollback; discard all; begin",
    "prepare mine as select 1",
    "listen mine",
    "select set_config('search_path', 'nowhere', false)",
    "create temporary table mine ()",
    "declare mine cursor with hold for select 1",
    "set session characteristics as transaction read only",
    "select pg_advisory_lock(1)",
    "select pg_terminate_backend(pg_backend_pid())",
    "deallocate one",
    "codec",
)


async def test_a_session_that_a_handler_has_spoilt_harms_no_other_job(
    connection: Connection, database: str
) -> None:
    registry = Registry()

    @registry.job("spoil", max_attempts=1)
    async def spoil(job: Job, how: str) -> None:
        async with job.transaction() as transaction:
            if how == "codec":
                await transaction.set_type_codec(
                    "jsonb", schema="pg_catalog", encoder=json.dumps, decoder=json.loads
                )
                return
            if how == "deallocate one":
                await transaction.fetch("select 1")
                how = await transaction.fetchval(
                    "select format('deallocate %I', name)"
                    " from pg_prepared_statements where statement = 'select 1'"
                )
            await transaction.execute(how)
            if "all" in how or how.startswith("deallocate"):
                await transaction.fetch("select 1")

    @registry.job("look", max_attempts=1)
    async def look(job: Job) -> None:
        async with job.transaction() as transaction:
            await transaction.fetch("select 1")
            job.set_result(
                await transaction.fetchval("select '{\"a\": 1}'::jsonb"),
            )

    async with embedded(database, registry, transaction_sessions=1):
        for how in SPOILS:
            await ended(connection, await insert(connection, "look"))
            await ended(
                connection, await insert(connection, "spoil", payload={"how": how})
            )
            row = await ended(connection, await insert(connection, "look"))
            assert (row["status"], row["result"]) == ("completed", '{"a": 1}'), how


async def test_a_codec_for_jsonb_does_not_disturb_the_result(
    connection: Connection, database: str
) -> None:
    async def pay(job: Job) -> None:
        async with job.transaction() as transaction:
            await transaction.set_type_codec(
                "jsonb", schema="pg_catalog", encoder=json.dumps, decoder=json.loads
            )
            job.set_result({"a": ["b"]})

    row, _ = await run(connection, database, pay)
    assert row["result"] == {"a": ["b"]}


async def test_a_transaction_in_the_block_is_a_savepoint(
    connection: Connection, database: str
) -> None:
    async def pay(job: Job) -> None:
        async with job.transaction() as transaction:
            await transaction.execute(ADD)
            try:
                async with transaction.transaction():
                    await transaction.execute(ADD)
                    await transaction.execute("select 1/0")
            except asyncpg.DivisionByZeroError:
                pass

    row, _ = await run(connection, database, pay)
    assert row["status"] == "completed"
    assert await balance(connection) == 1


async def test_the_connection_is_of_no_use_after_the_block(
    connection: Connection, database: str
) -> None:
    errors: list[str] = []

    async def pay(job: Job) -> None:
        async with job.transaction() as transaction:
            await transaction.execute(ADD)
        try:
            await transaction.execute(ADD)
        except asyncpg.InterfaceError as error:
            errors.append(str(error))

    await run(connection, database, pay)
    assert len(errors) == 1
    assert await balance(connection) == 1


async def test_many_jobs_at_once_have_a_connection_each_and_use_them_again(
    connection: Connection, database: str
) -> None:
    registry = Registry()

    @registry.job("pay")
    async def pay(job: Job) -> None:
        async with job.transaction() as transaction:
            await transaction.execute("select pg_advisory_xact_lock(1)")
            await transaction.execute(ADD)

    for _ in range(60):
        await insert(connection, "pay")
    async with embedded(database, registry, queues="default:7") as worker:
        await wait_for(lambda: total(worker, "jobs_completed") == 60)
        sessions = await connection.fetchval(
            "select count(*) from pg_stat_activity where application_name = $1",
            f"pgwake:{worker.name}/tx",
        )
    assert await balance(connection) == 60
    assert 2 <= sessions <= 7


async def test_a_worker_leaves_no_connection_of_its_handlers_behind(
    connection: Connection, database: str
) -> None:
    async def pay(job: Job) -> None:
        async with job.transaction() as transaction:
            await transaction.execute(ADD)

    await run(connection, database, pay)

    async def none_is_left() -> bool:
        return not await connection.fetchval(
            "select exists (select from pg_stat_activity"
            " where application_name like 'pgwake:%/tx')"
        )

    await wait_for(none_is_left)


async def test_a_session_that_dies_as_it_is_given_back_disturbs_nobody(
    database: str,
) -> None:
    unused: Any = None
    service = JobServices(database, "pgwake:test", 5, 10, unused, unused)
    try:
        with psycopg.connect(database, autocommit=True) as killer:
            # It may be any turn of the loop at which its last words are read.
            for turns in [*range(8), *range(8)]:
                lent = await service.acquire()
                pid = lent.get_server_pid()
                # Without a turn of the loop meanwhile, until it has said that it ends.
                killer.execute("select pg_terminate_backend(%s, 5000)", [pid])
                for _ in range(turns):
                    await asyncio.sleep(0)
                await service.release(lent)
    finally:
        service.close()

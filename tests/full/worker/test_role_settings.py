"""What a role or a database sets for its sessions must not reach the worker's."""

import asyncio
import re
from datetime import timedelta

import pytest

from pgwake import Job, Registry
from pgwake.database.install import install
from support import OWNER, Connect, Connection
from support.sql.helpers import insert, set_queue
from support.worker.helpers import all_ended, embedded, ended, insert_some, sessions
from support.worker.processes import Pgwake

SETTINGS = {
    "default_transaction_isolation": "serializable",
    "default_transaction_deferrable": "on",
    "statement_timeout": "200ms",
    "lock_timeout": "100ms",
    "idle_in_transaction_session_timeout": "100ms",
    "idle_session_timeout": "300ms",
    "transaction_timeout": "200ms",  # from PostgreSQL 17 on
    "timezone": "Asia/Kathmandu",
    "datestyle": "SQL, DMY",
    "intervalstyle": "sql_standard",
    "bytea_output": "escape",
    "extra_float_digits": "-15",
    "search_path": "nowhere",
    "standard_conforming_strings": "off",
    "enable_indexscan": "off",
    "plan_cache_mode": "force_custom_plan",
    "client_min_messages": "debug5",
}

# Those that no other of their group could hide, together.
GROUPS = [
    "_timeout$",
    "transaction_(isolation|deferrable)|messages|scan|plan",
    "style|timezone|bytea|float|path|strings",
]


async def alter_role(admin: Connection, settings: dict[str, str]) -> None:
    known = {
        row["name"]
        for row in await admin.fetch("select name from pg_catalog.pg_settings")
    }
    database = await admin.fetchval("select current_database()")
    for name, value in settings.items():
        if name in known:
            # For this database only, since the tests share the role.
            await admin.execute(
                f"alter role {OWNER} in database {database} set {name} = '{value}'"
            )


LIMITS = {  # shorter than what is done under them
    "statement_timeout": "200ms",
    "lock_timeout": "100ms",
    "idle_in_transaction_session_timeout": "300ms",
    "transaction_timeout": "300ms",
}


def run_numbers() -> tuple[Registry, list[int]]:
    """A handler that fails for each seventh number at first, and what it has run."""
    registry = Registry()
    ran: list[int] = []

    @registry.job("run")
    async def run(number: int) -> int:
        ran.append(number)
        if number % 7 == 0 and ran.count(number) == 1:
            raise ValueError(number)
        return number

    return registry, ran


@pytest.mark.parametrize("isolation", ["repeatable read", "serializable"])
async def test_a_raised_isolation_level_costs_nothing(
    connection: Connection,
    database: str,
    admin_url: str,
    connect: Connect,
    isolation: str,
) -> None:
    await alter_role(
        await connect(admin_url), {"default_transaction_isolation": isolation}
    )
    await set_queue(connection, backoff_base=timedelta(milliseconds=1))
    await connection.execute(
        "insert into pgwake.jobs (kind, payload)"
        " select 'run', jsonb_build_object('number', n) from generate_series(1, 1000) n"
    )
    registry, ran = run_numbers()
    async with (
        embedded(database, registry),
        embedded(database, registry),
        embedded(database, registry),
    ):
        await all_ended(connection)

    assert len(ran) == 1000 + 1000 // 7
    assert not await connection.fetchval(
        "select count(*) from pgwake.jobs where status <> 'completed'"
        " or crash_count > 0 or attempt > 2"
    )


@pytest.mark.parametrize("names", GROUPS)
async def test_a_setting_of_the_role_does_not_disturb_the_worker(
    connection: Connection, database: str, admin_url: str, connect: Connect, names: str
) -> None:
    changes = {n: value for n, value in SETTINGS.items() if re.search(names, n)}
    await alter_role(await connect(admin_url), changes)
    registry = Registry()

    @registry.job("slow")
    async def slow() -> str:
        await asyncio.sleep(0.7)
        return "done"

    later = await connection.fetchval("select now() + interval '0.2 seconds'")
    ids = [
        await insert(connection, "slow"),
        await insert(connection, "slow", run_at=later),
    ]
    async with embedded(database, registry, lease=1):
        begun = {row["pid"] for row in await sessions(connection)}
        rows = [await ended(connection, job_id) for job_id in ids]
        still = {row["pid"] for row in await sessions(connection)}

    for row in rows:
        assert (row["status"], row["result"]) == ("completed", "done")
        assert (row["attempt"], row["crash_count"], row["errors"]) == (1, 0, None)
    # No session of the worker's was ended by it.
    assert begun <= still


async def test_a_lock_that_is_held_for_long_is_waited_for(
    connection: Connection, database: str, admin_url: str, connect: Connect
) -> None:
    admin, holder = await connect(admin_url), await connect()
    await alter_role(admin, SETTINGS)
    registry, ran = run_numbers()
    async with embedded(database, registry):
        before = {row["pid"] for row in await sessions(connection)}
        async with holder.transaction():
            await holder.execute("lock table pgwake.jobs_live in access exclusive mode")
            await holder.execute(
                "insert into pgwake.jobs (kind, payload)"
                " values ('run', '{\"number\": 1}')"
            )
            await asyncio.sleep(2)  # longer than each of the role's time-outs
        row = await ended(connection, 1)

        assert before <= {row["pid"] for row in await sessions(connection)}

    assert (row["status"], ran) == ("completed", [1])


async def test_time_limits_of_the_role_end_no_block_purge_or_installation(
    connection: Connection,
    connect: Connect,
    database: str,
    admin_url: str,
    pgwake: Pgwake,
) -> None:
    await insert_some(connection, "old", 10000)
    await connection.fetch("select pgwake.cancel_jobs('default')")
    await alter_role(await connect(admin_url), LIMITS)
    holder = await connect(admin_url)
    registry = Registry()

    @registry.job("think", max_attempts=1)
    async def think(job: Job) -> None:
        async with job.transaction() as transaction:
            await transaction.execute("select pg_sleep(0.3)")
            await asyncio.sleep(0.5)
            await transaction.execute("select 1")

    async with holder.transaction():
        await holder.execute("lock table pgwake.jobs in share mode")
        installing = asyncio.create_task(install(database))
        await asyncio.sleep(0.5)
    await installing
    options = ("--status", "cancelled", "--queue", "default", "--yes", "--json")
    purged = await pgwake("purge", *options)
    assert purged.code == 0, purged.errors
    assert "10000" in purged.output
    async with embedded(database, registry):
        row = await ended(connection, await insert(connection, "think"))
    assert (row["status"], row["errors"]) == ("completed", None)

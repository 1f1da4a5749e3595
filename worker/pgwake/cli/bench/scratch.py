"""A queue of a tool's own on somebody's database: with leave, and removed after."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import asyncpg

from pgwake.database.connection import (
    FAULTS,
    Connection,
    check_writable,
    connect,
    describe,
)
from pgwake.database.install import schema_problem
from pgwake.database.pooler import PooledError, check_listening
from pgwake.database.statements import scratch
from pgwake.database.statements.install import get_adoption, installed_schema
from pgwake.database.statements.operate import cancel_jobs, purge
from pgwake.database.statements.stats import list_workers
from pgwake.database.statements.upkeep import forget_worker, release_worker_jobs
from pgwake.errors import ROLES_HINT, ConfigurationError, PgwakeError
from pgwake.observe.database_fit import adoption_problem
from pgwake.settings import Settings

PRODUCTION = "production"  # the environment's name, as `pgwake adopt` notes it
MOST = 1_000_000  # jobs a call
POLL_SECONDS = 0.1
REMOVE_SECONDS = 600.0


@asynccontextmanager
async def scratch_queue(
    settings: Settings,
    name: str,
    kinds: Sequence[str],
    *,
    in_production: bool = False,
) -> AsyncIterator[Connection]:
    """Have a queue that nobody else uses, empty at first and removed at the end.

    Its workers have to be stopped by then. What an earlier run has left, since it was
    killed, is removed first. The queue belongs to the session that
    this gives; it is removed by another, so that it does not matter if that is lost.

    Args:
        settings: Whose database it is.
        name: The queue's name.
        kinds: The kinds of its jobs; what workers declare of them is removed, too.
        in_production: Go on in an environment that is named production.

    Yields:
        The session; its statements may take ten minutes.

    Raises:
        ConfigurationError: It can't be done here; the message says what to do.
        PgwakeError: It could not be removed.
        asyncpg.PostgresError, OSError: The server refused something, or is gone.
    """
    connection = await _connect(settings)
    try:
        await _check(connection, settings, name, in_production=in_production)
        await _remove(connection, name, kinds)
        try:
            yield connection
        finally:
            removal = asyncio.ensure_future(_remove_at_last(settings, name, kinds))
            try:
                await asyncio.shield(removal)
            except asyncio.CancelledError:
                await removal  # whoever is stopped now has it removed all the same
                raise
    finally:
        connection.terminate()


async def _connect(settings: Settings) -> Connection:
    connection = await connect(settings.dsn, "pgwake:scratch", settings.query_timeout)
    try:
        await check_listening(
            connection, settings.dsn, "pgwake:scratch", settings.query_timeout
        )
        await scratch.wait_longer(connection)
    except PooledError:
        connection.terminate()
        raise ConfigurationError(
            "the database is reached through a pooler in transaction mode: name it "
            "directly, by --database-url"
        ) from None
    except BaseException:
        connection.terminate()
        raise
    return connection


async def _check(
    connection: Connection, settings: Settings, name: str, *, in_production: bool
) -> None:
    """Find out whether the queue may be made here, and by this role.

    Raises:
        ConfigurationError: It may not.
    """
    await check_writable(connection)
    try:
        problem = schema_problem(await installed_schema(connection))
        if problem is not None:
            raise ConfigurationError(problem)
        adoption = await get_adoption(connection)
        may = await scratch.may(connection)
    except asyncpg.InsufficientPrivilegeError as error:
        raise ConfigurationError(f"{error.message}. {ROLES_HINT}") from None
    if problem := adoption_problem(adoption, settings.environment):
        raise ConfigurationError(problem)
    if adoption.environment == PRODUCTION and not in_production:
        raise ConfigurationError(
            "the database is noted for environment 'production': it would be put "
            "under load. If that is meant: --in-production"
        )
    if not may:
        raise ConfigurationError(
            "the role may not cancel and purge jobs, or delete queues: it has to be "
            "the owner of schema pgwake, or a member of pgwake_admin"
        )
    if not await scratch.take(connection, name):
        raise ConfigurationError(f"queue {name} is used by another run: let it end")
    for worker in await list_workers(connection):
        if worker["is_live"] and name in worker["queues"]:
            raise ConfigurationError(
                f"queue {name} has a worker, {worker['name']}: an earlier run was "
                "killed, so end it (it is forgotten within half a minute)"
            )


async def _remove_at_last(settings: Settings, name: str, kinds: Sequence[str]) -> None:
    try:
        connection = await _connect(settings)
        try:
            await _remove(connection, name, kinds)
        finally:
            connection.terminate()
    except FAULTS as error:
        raise PgwakeError(
            f"queue {name} and its jobs are still there, the next run removes them: "
            f"{describe(error)}"
        ) from error


async def _remove(connection: Connection, name: str, kinds: Sequence[str]) -> None:
    """Delete the queue's jobs wherever they are, and all else of it."""
    async with asyncio.timeout(REMOVE_SECONDS):
        while (left := await scratch.left(connection, name)).live:
            await cancel_jobs(
                connection, name, None, None, None, None, MOST, dry_run=False
            )
            for holder in await scratch.holders(connection, name):
                await release_worker_jobs(connection, holder)
            await asyncio.sleep(POLL_SECONDS)
        for status in ("failed", "completed", "cancelled"):
            for _ in range(0, getattr(left, status), MOST):
                await purge(
                    connection, status, name, None, None, None, MOST, dry_run=False
                )
        for worker in await list_workers(connection):
            if name in worker["queues"]:
                await forget_worker(connection, worker["name"])
        await scratch.forget(connection, name, list(kinds))

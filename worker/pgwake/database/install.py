"""Installs the schema without psql: reads the files of sql/ the way psql does."""

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from time import monotonic

import asyncpg

from pgwake.database.connection import backoff, connect
from pgwake.database.statements.install import (
    Schema,
    has_roles,
    installed_schema,
    run_installer,
)
from pgwake.version import SCHEMA_VERSION

PASSING = ("40001", "40P01", "55P03")  # serialization, deadlock, lock not available
LEAST_SECONDS = 3.0  # to try again in


def sql_directory() -> Path:
    """Return the folder with install.sql: in the wheel, or in the checkout."""
    packaged = Path(__file__).parents[1] / "sql"
    return packaged if packaged.is_dir() else Path(__file__).parents[3] / "sql"


def install_script(directory: Path | None = None, name: str = "install.sql") -> str:
    """Return install.sql or roles.sql with its includes in place, as one script."""
    return "".join(_lines((directory or sql_directory()) / name))


def _lines(path: Path) -> Iterator[str]:
    for line in path.read_text(encoding="utf-8").splitlines(keepends=True):
        command, _, argument = line.strip().partition(" ")
        if command == "\\ir":
            yield from _lines(path.parent / argument)
        elif not command.startswith("\\"):
            yield line


def schema_problem(schema: Schema | None) -> str | None:
    """Return why this version can't use what is installed; None: it can."""
    if schema is None or schema.version < SCHEMA_VERSION:
        found = "no pgwake schema" if schema is None else f"pgwake schema {schema[0]}"
        return (
            f"the database has {found}, this version needs {SCHEMA_VERSION}: run "
            "`pgwake init` with the version that the workers have"
        )
    if schema.serves_from > SCHEMA_VERSION:
        return (
            f"the database has pgwake schema {schema.version}, which serves workers "
            f"from schema {schema.serves_from} on, and this version is made for "
            f"{SCHEMA_VERSION}: run a newer pgwake"
        )
    return None


async def install(
    dsn: str,
    timeout: float = 60.0,  # noqa: ASYNC109
    *,
    roles: bool = False,
) -> tuple[int | None, int]:
    """Install the schema, or bring it up to date; the versions before and after.

    Nothing is changed unless all is. What passes is tried again until the deadline: a
    table that somebody holds, another installer.

    Args:
        dsn: The database's URL; its role must be allowed to create a schema, or be a
            member of the one that owns schema pgwake.
        timeout: Deadline in seconds.
        roles: Make the three roles and their grants, too. Where they have been made,
            what is new is granted to them in any case.

    Raises:
        asyncpg.PostgresError: PW004 for a newer schema, 42501 for lack of rights, 55P03
            if a table could not be locked; the hint says what to do.
    """
    give_up_at = monotonic() + timeout
    while True:
        left = give_up_at - monotonic()
        try:
            return await _install(dsn, left, roles=roles)
        except asyncpg.PostgresError as error:
            left = give_up_at - monotonic()
            if error.sqlstate not in PASSING or left < LEAST_SECONDS:
                raise
            await asyncio.sleep(backoff(1))


async def _install(dsn: str, seconds: float, *, roles: bool) -> tuple[int | None, int]:
    connection = await connect(dsn, "pgwake:init", seconds)
    try:
        before = None
        with suppress(asyncpg.InsufficientPrivilegeError):  # the script says who may
            before = await installed_schema(connection)
        # A third for the tables; another installer's turn is waited for twice as long.
        async with asyncio.timeout(seconds + 5):  # if the server is gone
            await run_installer(connection, install_script(), patience=seconds / 3)
            if roles or await has_roles(connection):
                await connection.execute(install_script(name="roles.sql"))
        after = await installed_schema(connection)
    finally:
        connection.terminate()
    assert after is not None  # noqa: S101, install.sql writes it
    return before and before.version, after.version

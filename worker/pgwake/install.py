"""Installs the schema without psql: reads the files of sql/ the way psql does."""

from collections.abc import Iterator
from pathlib import Path

from pgwake.connection import connect
from pgwake.queue import SCHEMA_VERSION, Schema, has_roles, installed_schema


def sql_directory() -> Path:
    """Return the folder with install.sql: in the wheel, or in the checkout."""
    packaged = Path(__file__).parent / "sql"
    return packaged if packaged.is_dir() else Path(__file__).parents[2] / "sql"


def install_script(name: str = "install.sql") -> str:
    """Return install.sql or roles.sql with its includes in place, as one script."""
    return "".join(_lines(sql_directory() / name))


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

    Args:
        dsn: The database's URL; its role must be allowed to create a schema.
        timeout: Deadline in seconds.
        roles: Make the three roles and their grants, too. Where they have been made,
            what is new is granted to them in any case.

    Raises:
        asyncpg.PostgresError: PW004 for a newer schema, 42501 for lack of rights.
    """
    connection = await connect(dsn, "pgwake:init", timeout)
    try:
        before = await installed_schema(connection)
        await connection.execute(install_script())
        if roles or await has_roles(connection):
            await connection.execute(install_script("roles.sql"))
        after = await installed_schema(connection)
    finally:
        connection.terminate()
    assert after is not None  # noqa: S101, install.sql writes it
    return before and before.version, after.version

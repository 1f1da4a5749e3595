"""Installs the schema without psql: reads sql/install.sql the way psql does."""

from collections.abc import Iterator
from pathlib import Path

from pgwake.connection import connect
from pgwake.queue import SCHEMA_VERSION, schema_version


def sql_directory() -> Path:
    """Return the folder with install.sql: in the wheel, or in the checkout."""
    packaged = Path(__file__).parent / "sql"
    return packaged if packaged.is_dir() else Path(__file__).parents[2] / "sql"


def install_script() -> str:
    """Return install.sql with its includes in place, as one script."""
    return "".join(_lines(sql_directory() / "install.sql"))


def _lines(path: Path) -> Iterator[str]:
    for line in path.read_text(encoding="utf-8").splitlines(keepends=True):
        command, _, argument = line.strip().partition(" ")
        if command == "\\ir":
            yield from _lines(path.parent / argument)
        elif not command.startswith("\\"):
            yield line


def version_problem(version: int | None) -> str | None:
    """Return what is wrong with an installed version, None where there is none."""
    if version == SCHEMA_VERSION:
        return None
    found = "no pgwake schema" if version is None else f"pgwake schema {version}"
    return (
        f"the database has {found}, this version needs {SCHEMA_VERSION}: run `pgwake "
        "init` with the version that the workers have"
    )


async def install(dsn: str, timeout: float = 60.0) -> tuple[int | None, int]:  # noqa: ASYNC109
    """Install the schema, or bring it up to date; the versions before and after.

    Args:
        dsn: The database's URL; its role must be allowed to create a schema.
        timeout: Deadline in seconds.

    Raises:
        asyncpg.PostgresError: PW004 for a newer schema, 42501 for lack of rights.
    """
    connection = await connect(dsn, "pgwake:init", timeout)
    try:
        before = await schema_version(connection)
        await connection.execute(install_script())
        after = await schema_version(connection)
    finally:
        connection.terminate()
    assert after is not None  # noqa: S101, install.sql writes it
    return before, after

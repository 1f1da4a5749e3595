"""The SQL of the installation: its schema's version, and which database it is for."""

from math import ceil
from typing import NamedTuple

import asyncpg

from pgwake.database.statements import Connection

SCHEMA_OF_DATABASE = "select v.version, v.serves_from from pgwake.schema_version as v"
STANDARD_STRINGS = "set standard_conforming_strings = on"  # when a script is parsed
_PATIENCE = (
    "set local pgwake.lock_patience = '{}ms';"  # begins the script's transaction
)
HAS_ROLES = """
select exists (
  select from pg_catalog.pg_roles as r
  where r.rolname in ('pgwake_producer', 'pgwake_worker', 'pgwake_admin')
    and has_schema_privilege(r.oid, 'pgwake', 'usage')
)
"""
_IS_READ_ONLY = """
select pg_is_in_recovery() or current_setting('transaction_read_only')::boolean
"""
_GET_ADOPTION = """
select a.identity, a.present_identity, a.is_copy, a.environment
from pgwake.get_adoption() as a
"""
_SCHEMA_AND_ADOPTION = """
select v.version, v.serves_from,
  a.identity, a.present_identity, a.is_copy, a.environment
from pgwake.schema_version as v cross join pgwake.get_adoption() as a
"""
_ADOPT = "select pgwake.adopt($1, $2)"


class Schema(NamedTuple):
    """A schema that is installed.

    Attributes:
        version: Its version.
        serves_from: The oldest version whose workers can use it.
    """

    version: int
    serves_from: int


async def installed_schema(connection: Connection) -> Schema | None:
    """Return which schema is installed; None where there is none."""
    try:
        row = await connection.fetchrow(SCHEMA_OF_DATABASE)
    except (asyncpg.UndefinedTableError, asyncpg.InvalidSchemaNameError):
        return None
    return Schema(*row) if row else None


async def run_installer(
    connection: Connection, script: str, *, patience: float
) -> None:
    """Run install.sql, which waits for its tables for so many seconds."""
    await connection.execute(STANDARD_STRINGS)
    await connection.execute(patient(script, patience))


def patient(script: str, seconds: float) -> str:
    """Return install.sql so that it waits for its tables for so many seconds."""
    return _PATIENCE.format(ceil(seconds * 1000)) + script


async def has_roles(connection: Connection) -> bool:
    """Return whether the roles of roles.sql have rights in this database."""
    answer: bool = await connection.fetchval(HAS_ROLES)
    return answer


async def is_read_only(connection: Connection) -> bool:
    """Return whether nothing can be written: a standby, or set so."""
    answer: bool = await connection.fetchval(_IS_READ_ONLY)
    return answer


class Adoption(NamedTuple):
    """What an installation is noted for.

    Attributes:
        identity: The database that it is for; None: it is not guarded.
        present_identity: The database that it is in.
        is_copy: Whether these differ, so that nothing is claimed.
        environment: Such as production; None: none is noted.
    """

    identity: str | None
    present_identity: str
    is_copy: bool
    environment: str | None


async def get_adoption(connection: Connection) -> Adoption:
    """Return what the installation is noted for."""
    row = await connection.fetchrow(_GET_ADOPTION)
    assert row is not None  # noqa: S101, the function always answers with one row
    return Adoption(*row)


async def schema_and_adoption(
    connection: Connection,
) -> tuple[Schema | None, Adoption | None]:
    """Return both at once; None where there is none, or none that can be asked."""
    try:
        row = await connection.fetchrow(_SCHEMA_AND_ADOPTION)
    except (
        asyncpg.UndefinedTableError,
        asyncpg.InvalidSchemaNameError,
        asyncpg.UndefinedFunctionError,
    ):
        return await installed_schema(connection), None
    if row is None:
        return None, None
    version, serves_from, *adoption = row
    return Schema(version, serves_from), Adoption(*adoption)


async def adopt(
    connection: Connection, environment: str | None = None, *, guard: bool = True
) -> None:
    """Note that the installation is for the database that it is in."""
    await connection.execute(_ADOPT, environment, guard)

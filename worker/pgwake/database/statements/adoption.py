"""Which database an installation is for, so that a copy of it is told from it."""

from typing import NamedTuple

from pgwake.database.statements import Connection

_GET_ADOPTION = """
select a.identity, a.present_identity, a.is_copy, a.environment
from pgwake.get_adoption() as a
"""
_ADOPT = "select pgwake.adopt($1, $2)"


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


async def adopt(
    connection: Connection, environment: str | None = None, *, guard: bool = True
) -> None:
    """Note that the installation is for the database that it is in."""
    await connection.execute(_ADOPT, environment, guard)

"""All SQL text, a module a room of sql/functions, a function for each of pgwake's."""

from typing import TYPE_CHECKING, Any, TypeAlias

from pgwake.jsontext import loads

if TYPE_CHECKING:
    import asyncpg

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"


def parsed(text: str | None) -> Any:
    """Return the value of a JSON text; None for none.

    Raises:
        UnreadableValueError: Python does not read it.
    """
    return None if text is None else loads(text)

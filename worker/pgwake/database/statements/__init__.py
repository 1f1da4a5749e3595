"""All SQL text, a module a room of sql/functions, a function for each of pgwake's."""

import json
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import asyncpg

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"


def parsed(text: str | None) -> Any:
    """Return the value of a JSON text; None for none."""
    return None if text is None else json.loads(text)

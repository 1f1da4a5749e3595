"""The SQL of what monitoring shows of the whole database."""

from typing import Any

from pgwake.database.statements import Connection

_GET_METRICS = """
select m.*,
  extract(epoch from clock_timestamp() - statement_timestamp())::float8 as seconds
from pgwake.get_metrics() as m
"""


async def get_metrics(
    connection: Connection,
    timeout: float,  # noqa: ASYNC109, asyncpg cancels the statement on the server
) -> list[dict[str, Any]]:
    """Return what get_metrics does, first a row without a queue.

    Each row has in `seconds` how long the server took.

    Raises:
        TimeoutError: It has taken longer than `timeout`, in seconds.
    """
    rows = await connection.fetch(_GET_METRICS, timeout=timeout)
    return [dict(row) for row in rows]

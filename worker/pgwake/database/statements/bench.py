"""The SQL of the benchmark: what it asks of the server, and its jobs."""

from collections.abc import Sequence

from pgwake.database.statements import Connection

ROUND_TRIP = "select 1"
# The smallest transaction that has something to flush; it touches no table.
COMMIT = "select pg_logical_emit_message(true, 'pgwake bench', '')"
_WAL_BYTES = "select (pg_current_wal_lsn() - '0/0'::pg_lsn)::bigint"
_INSERT = """
insert into pgwake.jobs (queue, kind, payload) select $1, $2, unnest($3::jsonb[])
"""


async def wal_bytes(connection: Connection) -> int:
    """Return how much WAL the server has ever written."""
    written: int = await connection.fetchval(_WAL_BYTES)
    return written


async def insert(
    connection: Connection, queue: str, kind: str, payloads: Sequence[str]
) -> None:
    """Put in jobs by one statement."""
    await connection.execute(_INSERT, queue, kind, payloads)

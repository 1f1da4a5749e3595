"""The SQL of the benchmark: what it asks of the server, and its jobs."""

from collections.abc import Sequence

from pgwake.database.statements import Connection

_BACKEND_PID = "select pg_backend_pid()"
_WAL_BYTES = "select (pg_current_wal_lsn() - '0/0'::pg_lsn)::bigint"
_ROUND_TRIP = "select 1"
# The smallest transaction that has something to flush; it touches no table.
_COMMIT = "select pg_logical_emit_message(true, 'pgwake bench', '')"
_VERSION = "select current_setting('server_version')"
_INSERT = "insert into pgwake.jobs (queue, kind, payload) values ($1, $2, $3)"
_INSERT_MANY = """
insert into pgwake.jobs (queue, kind, payload) select $1, $2, unnest($3::jsonb[])
"""
_LAST_ID = "select max(j.id) from pgwake.jobs_live as j where j.queue = $1"
_IS_LIVE = "select exists (select from pgwake.jobs_live as j where j.id = $1)"


async def backend_pid(connection: Connection) -> int:
    """Return the process id of the session, whatever stands before the server."""
    pid: int = await connection.fetchval(_BACKEND_PID)
    return pid


async def wal_bytes(connection: Connection) -> int:
    """Return how much WAL the server has ever written."""
    written: int = await connection.fetchval(_WAL_BYTES)
    return written


async def round_trip(connection: Connection) -> None:
    """Ask for nothing."""
    await connection.fetchval(_ROUND_TRIP)


async def commit(connection: Connection) -> None:
    """Commit something that has to be flushed."""
    await connection.fetchval(_COMMIT)


async def server_version(connection: Connection) -> str:
    """Return the server's version, such as "18.6"."""
    version: str = await connection.fetchval(_VERSION)
    return version.partition(" ")[0]


async def insert(connection: Connection, queue: str, kind: str, payload: str) -> None:
    """Put in a job as a producer does."""
    await connection.execute(_INSERT, queue, kind, payload)


async def insert_many(
    connection: Connection, queue: str, kind: str, payloads: Sequence[str]
) -> None:
    """Put in many jobs by one statement."""
    await connection.execute(_INSERT_MANY, queue, kind, payloads)


async def last_id(connection: Connection, queue: str) -> int | None:
    """Return the id of the queue's last live job."""
    job_id: int | None = await connection.fetchval(_LAST_ID, queue)
    return job_id


async def is_live(connection: Connection, job_id: int | None) -> bool:
    """Whether a job has not ended."""
    found: bool = await connection.fetchval(_IS_LIVE, job_id)
    return found

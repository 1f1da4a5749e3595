"""What the pytest plugin asks: one job at a time, as text for every driver's sake.

A user's own connection may have codecs of its own for JSON: so all JSON goes as text.
"""

from datetime import datetime, timedelta
from typing import Any

from pgwake.database.statements import Connection, parsed

_CREATE_DATABASE = "create database {name}"
_CLONE_DATABASE = "create database {name} template {template}"
# Where nothing is flushed, files are copied four times as fast as by WAL.
_COPIES_FILES = """
select current_setting('fsync') = 'off'
  and current_setting('server_version_num')::int >= 150000
"""
_DROP_DATABASE = "drop database {name} with (force)"
_CLAIM_ONE = """
select c.id, c.lease_id, c.kind, c.payload::text, c.attempt, c.max_attempts,
  date_part('epoch', c.lease_expires_at), date_part('epoch', c.created_at),
  c.metadata::text, c.options::text, null, date_part('epoch', c.claimed_at)
from pgwake.claim_rows($1, 1, $2, suspects => $3) as c
"""
_QUEUES_TO_CLAIM = """
select distinct j.queue from pgwake.jobs_live as j
where j.status = 'waiting' or (j.status = 'pending' and j.run_at <= pgwake.now())
order by j.queue
"""
_WAKE_AT_ONCE = "set constraints pgwake.events_after_insert immediate"
_END_OF_ATTEMPT = """
select j.status, j.result::text, j.errors -> -1 ->> 'message'
from pgwake.jobs as j
where j.id = $1
"""
_LIST_ENQUEUED = """
select j.id, j.queue, j.kind, j.payload::text, j.priority, j.run_at, j.created_at,
  j.attempt, j.metadata::text, j.unique_key, j.concurrency_key, j.status
from pgwake.jobs_live as j
where j.status in ('pending', 'waiting')
order by j.id
"""
_NOW = "select pgwake.now()"
_MOVE_CLOCK = """
create or replace function pgwake.now()
returns timestamptz
language sql stable parallel safe
as $$
  select pg_catalog.now() + interval '{seconds:.6f} seconds' + pgwake.clock_offset()
$$
"""
_CLOCK_IS_AHEAD = """
select pgwake.now() - pg_catalog.now() - pgwake.clock_offset()
"""
_MOVE_SESSION_CLOCK = """
select set_config('pgwake.clock_offset', (coalesce(
  nullif(current_setting('pgwake.clock_offset', true), ''), '0')::interval
  + $1::interval)::text, $2)
"""


async def create_database(
    connection: Connection, name: str, template: str | None
) -> None:
    """Create a database, perhaps as a clone; the names are the plugin's own."""
    statement = _CREATE_DATABASE if template is None else _CLONE_DATABASE
    statement = statement.format(name=name, template=template)
    if template is not None and await connection.fetchval(_COPIES_FILES):
        statement += " strategy file_copy"
    await connection.execute(statement)


async def drop_database(connection: Connection, name: str) -> None:
    """Drop a database, whoever is connected to it."""
    await connection.execute(_DROP_DATABASE.format(name=name))


async def claim_one(
    connection: Connection, worker: str
) -> tuple[tuple[Any, ...], str, float] | None:
    """Claim a due job of any queue: its row as a claim's, the queue, and when."""
    for (queue,) in await connection.fetch(_QUEUES_TO_CLAIM):
        for suspects in (False, True):
            *rows, said = await connection.fetch(_CLAIM_ONE, queue, worker, suspects)
            for row in rows:
                return tuple(row)[:-1], queue, said[-1]
    return None


async def wake_at_once(connection: Connection) -> None:
    """Have events wake who waits before the open transaction commits: it never may."""
    await connection.fetch(_WAKE_AT_ONCE)


async def end_of_attempt(
    connection: Connection, job_id: int
) -> tuple[str, Any, str | None]:
    """Return a job's status, its result, and its last error's message."""
    (row,) = await connection.fetch(_END_OF_ATTEMPT, job_id)
    return row[0], parsed(row[1]), row[2]


async def list_enqueued(connection: Connection) -> list[tuple[Any, ...]]:
    """Return the jobs that are to run, in order of id."""
    return [
        (*row[:3], parsed(row[3]), *row[4:8], parsed(row[8]), *row[9:])
        for row in await connection.fetch(_LIST_ENQUEUED)
    ]


async def now(connection: Connection) -> datetime:
    """Return the queue's clock."""
    found: datetime = await connection.fetchval(_NOW)
    return found


async def move_clock(connection: Connection, by: timedelta) -> None:
    """Move the clock of the database, for every session of it, open ones too.

    A setting of the database would reach new sessions only, so the function that reads
    the clock is replaced: plans that have it inline are made anew.
    """
    ahead: timedelta = await connection.fetchval(_CLOCK_IS_AHEAD)
    await connection.execute(_MOVE_CLOCK.format(seconds=(ahead + by).total_seconds()))


async def move_session_clock(
    connection: Connection, by: timedelta, *, in_transaction: bool
) -> None:
    """Move the clock of a session, or of the transaction that is open in it."""
    await connection.fetchval(_MOVE_SESSION_CLOCK, by, in_transaction)

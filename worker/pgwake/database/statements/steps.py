"""The SQL of steps, sleeps and waits: of a running job, under its lease.

Each takes the connection, the job's id and its lease first, so that the rest of a
question can be made elsewhere, in a handler's process too. JSON goes as text, since a
user's own connection may have a codec for it.
"""

from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from pgwake.database.statements import Connection

# A sleep is past when it is over, a wait when its time was up.
_GET_STEPS = """
select s.name, s.kind, s.result::text, s.until <= pgwake.now()
from pgwake.get_steps($1) as s
"""
_RECORD_STEP = "select pgwake.record_step($1, $2, $3, $4::text::jsonb)::text"
_RECORD_STEPS = """
select r.outcome, r.result::text
from unnest(
  pgwake.record_steps($1, $2, $3, $4::text[]::jsonb[]), $4::text[]::jsonb[]
) as r(outcome, result)
"""
_SLEEP_JOB = """
select pgwake.sleep_job($1, $2, $3, coalesce($4, pgwake.now() + $5::interval))
"""
_AWAIT_EVENT = """
select a.outcome, a.result::text
from pgwake.await_event($1, $2, $3, $4, $5, $6) as a
"""
_AWAIT_JOB = """
select a.outcome, a.result::text
from pgwake.await_job($1, $2, $3, $4, $5, $6) as a
"""


class RecordedStep(NamedTuple):
    """A step that a job has recorded.

    Attributes:
        kind: step, sleep or event.
        result: As JSON text; of an event its payload.
        is_past: Of a sleep: whether it is over. Of an event: true if its time was up.
    """

    kind: str
    result: str | None
    is_past: bool | None = None


async def get_steps(
    connection: Connection, job_id: int, lease_id: UUID
) -> dict[str, RecordedStep]:
    """Return what a job has recorded, by name."""
    del lease_id
    rows = await connection.fetch(_GET_STEPS, job_id)
    return {row[0]: RecordedStep(*tuple(row)[1:]) for row in rows}


async def record_step(
    connection: Connection, job_id: int, lease_id: UUID, name: str, result: str | None
) -> str | None:
    """Record a step; its result as the database has it, of who recorded it first."""
    recorded: str | None = await connection.fetchval(
        _RECORD_STEP, job_id, lease_id, name, result
    )
    return recorded


async def record_steps(
    connection: Connection,
    job_ids: list[int],
    lease_ids: list[UUID],
    names: list[str],
    results: list[str | None],
) -> list[tuple[str, str | None]]:
    """Record steps of jobs; an outcome each, and its result as PostgreSQL has it."""
    rows = await connection.fetch(_RECORD_STEPS, job_ids, lease_ids, names, results)
    return [(row[0], row[1]) for row in rows]


async def sleep_job(
    connection: Connection,
    job_id: int,
    lease_id: UUID,
    name: str,
    until: datetime | None,
    delay: timedelta | None,
) -> str:
    """Let a job sleep until then, or for so long: over, sleeps or cancelled."""
    outcome: str = await connection.fetchval(
        _SLEEP_JOB, job_id, lease_id, name, until, delay
    )
    return outcome


async def await_event(
    connection: Connection,
    job_id: int,
    lease_id: UUID,
    event: str,
    timeout: timedelta | None,  # noqa: ASYNC109, of the job
    name: str,
    *,
    may_wait: bool,
) -> tuple[str, str | None]:
    """Let a job wait: (here, timed_out, waits or cancelled, the event's payload)."""
    (row,) = await connection.fetch(
        _AWAIT_EVENT, job_id, lease_id, event, timeout, name, may_wait
    )
    return row[0], row[1]


async def await_job(
    connection: Connection,
    job_id: int,
    lease_id: UUID,
    other_id: int,
    timeout: timedelta | None,  # noqa: ASYNC109, of the job
    name: str,
    *,
    may_wait: bool,
) -> tuple[str, str | None]:
    """Let a job wait for another one's end; as await_event."""
    (row,) = await connection.fetch(
        _AWAIT_JOB, job_id, lease_id, other_id, timeout, name, may_wait
    )
    return row[0], row[1]

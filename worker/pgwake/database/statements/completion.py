"""The SQL of handlers that complete their jobs themselves, and ask for the parents'.

Values go as text: the connection is a handler's, who may have set a codec for jsonb.
"""

from typing import Any
from uuid import UUID

from pgwake.database.statements import Connection, parsed

_COMPLETE_JOB = "select pgwake.complete_job($1, $2, $3::text::jsonb)"
_LEASE_OUTCOMES = """
select pgwake.lease_outcome(u.job_id, u.lease_id)
from unnest($1::bigint[], $2::uuid[]) with ordinality as u(job_id, lease_id, place)
order by u.place
"""
_PARENT_RESULTS = """
select p.parent_id, p.kind, p.status, p.result::text
from pgwake.get_parent_results($1) as p
"""


async def complete_job(
    connection: Connection, job_id: int, lease_id: UUID, result: str | None
) -> None:
    """Complete a job, its result as JSON text."""
    await connection.execute(_COMPLETE_JOB, job_id, lease_id, result)


async def lease_outcomes(
    connection: Connection, job_ids: list[int], lease_ids: list[UUID]
) -> list[str]:
    """Return what became of each job under its lease; held: it is still running."""
    rows = await connection.fetch(_LEASE_OUTCOMES, job_ids, lease_ids)
    return [row[0] for row in rows]


async def parent_results(
    connection: Connection, job_id: int
) -> list[tuple[int, str, str, Any]]:
    """Return (id, kind, status, result) of a job's parents."""
    return [
        (row[0], row[1], row[2], parsed(row[3]))
        for row in await connection.fetch(_PARENT_RESULTS, job_id)
    ]

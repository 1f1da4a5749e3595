"""The SQL of progress: how far running jobs are."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from pgwake.database.statements import Connection, parsed

_SET_PROGRESSES = "select pgwake.set_progresses($1, $2, $3::text[]::jsonb[])"
_IN_PROGRESS = """
select j.id, j.queue, j.kind, j.started_at, j.claimed_by, j.progress::text
from pgwake.jobs_live as j
where j.status = 'running' and j.progress is not null
  and ($1::text is null or j.queue = $1)
order by j.started_at
limit $2
"""


async def set_progresses(
    connection: Connection,
    job_ids: Sequence[int],
    lease_ids: Sequence[UUID],
    progresses: Sequence[str | None],
) -> list[str]:
    """Note how far jobs are, JSON text each; an outcome each."""
    outcomes: list[str] = await connection.fetchval(
        _SET_PROGRESSES, job_ids, lease_ids, progresses
    )
    return outcomes


async def jobs_in_progress(
    connection: Connection, queue: str | None, limit: int
) -> list[dict[str, Any]]:
    """Return running jobs that say how far they are, the longest-running first."""
    rows = await connection.fetch(_IN_PROGRESS, queue, limit)
    return [{**row, "progress": parsed(row["progress"])} for row in rows]

"""The SQL of ends: how attempts end, and how jobs are kept until then.

Values of a handler's own connection go as text: it may have a codec for jsonb.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from pgwake.database.statements import Connection, parsed

# JSON as text: a caller's own connection may have a codec for it.
# Null if all are completed, as nearly always: that is sent in no time.
_COMPLETE_JOBS = """
select case when 'completed' <> any (c.outcomes) then c.outcomes end
from pgwake.complete_jobs($1, $2, $3::text[]::jsonb[]) as c(outcomes)
"""
_FAIL_JOBS = """
select pgwake.fail_jobs($1, $2, errors => $3, tracebacks => $4, reasons => $5,
                        retryables => $6, retry_ins => $7)
"""
_RELEASE_JOBS = "select pgwake.release_jobs($1, $2, $3, $4, $5)"
_EXTEND_LEASES = "select pgwake.extend_leases($1, $2, $3)"
# On connections of other drivers, too.
COMPLETE_JOB = """
select pgwake.complete_job(
  cast($1 as bigint), cast($2 as uuid), cast(cast($3 as text) as jsonb))
"""
_LEASE_OUTCOMES = """
select pgwake.lease_outcome(u.job_id, u.lease_id)
from unnest($1::bigint[], $2::uuid[]) with ordinality as u(job_id, lease_id, place)
order by u.place
"""
_PARENT_RESULTS = """
select p.parent_id, p.kind, p.status, p.result::text
from pgwake.get_parent_results($1) as p
"""
_SET_PROGRESSES = "select pgwake.set_progresses($1, $2, $3::text[]::jsonb[])"


@dataclass(frozen=True, slots=True)
class Failure:
    """One failed attempt, as fail_jobs takes it."""

    job_id: int
    lease_id: UUID
    message: str
    reason: str = "failed"
    retryable: bool = True
    traceback: str | None = None
    retry_in: timedelta | None = None  # None: after the backoff


async def complete_jobs(
    connection: Connection,
    job_ids: Sequence[int],
    lease_ids: Sequence[UUID],
    results: Sequence[str | None] | None,
) -> list[str]:
    """Complete a batch; an outcome each."""
    outcomes: list[str] | None = await connection.fetchval(
        _COMPLETE_JOBS, job_ids, lease_ids, results
    )
    return ["completed"] * len(job_ids) if outcomes is None else outcomes


async def fail_jobs(connection: Connection, failures: Sequence[Failure]) -> list[str]:
    """Record failed attempts; an outcome each."""
    outcomes: list[str] = await connection.fetchval(
        _FAIL_JOBS,
        [f.job_id for f in failures],
        [f.lease_id for f in failures],
        [f.message for f in failures],
        [f.traceback for f in failures],
        [f.reason for f in failures],
        [f.retryable for f in failures],
        [f.retry_in for f in failures],
    )
    return outcomes


async def release_jobs(
    connection: Connection,
    job_ids: Sequence[int],
    lease_ids: Sequence[UUID],
    reason: str,
    delays: Sequence[timedelta | None] | None = None,
    errors: Sequence[str | None] | None = None,
) -> list[str]:
    """Give jobs back unburnt; an outcome each."""
    outcomes: list[str] = await connection.fetchval(
        _RELEASE_JOBS, job_ids, lease_ids, reason, delays, errors
    )
    return outcomes


async def extend_leases(
    connection: Connection,
    job_ids: Sequence[int],
    lease_ids: Sequence[UUID],
    lease: timedelta | None,
) -> list[str]:
    """Keep running jobs; an outcome each."""
    outcomes: list[str] = await connection.fetchval(
        _EXTEND_LEASES, job_ids, lease_ids, lease
    )
    return outcomes


async def complete_job(
    connection: Connection, job_id: int, lease_id: UUID, result: str | None
) -> None:
    """Complete a job, its result as JSON text."""
    await connection.execute(COMPLETE_JOB, job_id, lease_id, result)


async def lease_outcomes(
    connection: Connection, job_ids: list[int], lease_ids: list[UUID]
) -> list[str]:
    """Return what became of each job under its lease; held: it is still running."""
    rows = await connection.fetch(_LEASE_OUTCOMES, job_ids, lease_ids)
    return [row[0] for row in rows]


async def lease_outcome(connection: Connection, job_id: int, lease_id: UUID) -> str:
    """The same of one job."""
    (outcome,) = await lease_outcomes(connection, [job_id], [lease_id])
    return outcome


async def parent_results(
    connection: Connection, job_id: int
) -> list[tuple[int, str, str, Any]]:
    """Return (id, kind, status, result) of a job's parents."""
    return [
        (row[0], row[1], row[2], parsed(row[3]))
        for row in await connection.fetch(_PARENT_RESULTS, job_id)
    ]


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

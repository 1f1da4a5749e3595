"""The SQL of claims, and of what is known of jobs that are to be claimed."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING
from uuid import UUID

from pgwake.database.statements import Connection

if TYPE_CHECKING:
    import asyncpg

# A row a job, the first with what is said of all, and at least that one. As one array
# the server would keep a kilobyte for each field of each job until all of it is sent.
_CLAIM = """
select a.job, case when a.place = 1 then a.seconds_to_next end,
  case when a.place = 1 then a.claimed_at end, case when a.place = 1 then a.cursor end,
  case when a.place = 1 then a.is_limited end{outer}
from (
  select b.claimed_at, b.cursor, b.is_limited{inner},
    extract(epoch from b.next_run_at - b.claimed_at)::float8 as seconds_to_next,
    unnest(case when b.jobs = '{{}}' then array[null::pgwake.claimed_job]
      else b.jobs end) as job,
    generate_series(1, greatest(cardinality(b.jobs), 1)) as place
  from pgwake.{function}($1, $2, $3, $4, $5, $6) as b
) as a
"""
_CLAIM_BATCH = _CLAIM.format(function="claim_batch", inner="", outer="")
_CLAIM_KNOWN = _CLAIM.format(
    function="claim_known_batch", inner=", b.left_out_id", outer=", a.left_out_id"
)
_LEASES_OF = """
select j.id, j.lease_id
from pgwake.jobs as j
where j.status = 'running' and j.claimed_by = $1
order by j.id
"""
_NEXT_SUSPECT_AT = """
select extract(epoch from s.at - pgwake.now())::float8
from pgwake.next_suspect_run_at($1) as s(at)
where s.at is not null
"""
_NEXT_RUN_AT = "select pgwake.next_run_at($1)"


@dataclass(frozen=True, slots=True)
class Claim:
    """What a claim answered, by the database's clock.

    Attributes:
        jobs: The claimed jobs.
        seconds_to_next: From the claim to the next due job; None if none is known, not
            positive if one is left: locked by somebody, or one too many that crashed.
        claimed_at: When the claim was.
        cursor: For the next claim of the queue.
        is_limited: Whether the queue has max_running or a rate limit: claim no more
            than can be run now.
        left_out_id: Of the jobs that were left out since nobody here knows their kind,
            the one that has become due last; None if there is none.
    """

    jobs: "Sequence[asyncpg.Record]"
    seconds_to_next: float | None
    claimed_at: datetime
    cursor: str | None
    is_limited: bool
    left_out_id: int | None = None

    @property
    def leaves_due(self) -> bool:
        """Whether a job that is due has been left."""
        return self.seconds_to_next is not None and self.seconds_to_next <= 0


async def claim_batch(
    connection: Connection,
    queue: str,
    count: int,
    worker: str,
    lease: timedelta | None,
    cursor: str | None = None,
    *,
    suspects: bool = False,
    unknown_kinds: Sequence[str] = (),
) -> Claim:
    """Claim up to count due jobs; see sql/functions/claim/claim_batch.sql.

    Without those of unknown_kinds; suspects are of any kind.
    """
    arguments = (queue, count, worker, lease, cursor)
    if unknown_kinds and not suspects:
        rows = await connection.fetch(_CLAIM_KNOWN, *arguments, unknown_kinds)
    else:
        rows = await connection.fetch(_CLAIM_BATCH, *arguments, suspects)
    first, *said = rows[0]
    jobs = [row[0] for row in rows] if first is not None else []
    return Claim(jobs, *said)


async def leases_of(connection: Connection, worker: str) -> list[tuple[int, UUID]]:
    """Return (id, lease_id) of the jobs that a worker has claimed and not ended."""
    rows = await connection.fetch(_LEASES_OF, worker)
    return [(row[0], row[1]) for row in rows]


async def seconds_to_suspect(
    connection: Connection, queues: Sequence[str]
) -> float | None:
    """Seconds until a suspect of these queues is due (negative: since); or None."""
    seconds: float | None = await connection.fetchval(_NEXT_SUSPECT_AT, queues)
    return seconds


async def next_run_at(connection: Connection, queue: str) -> datetime | None:
    """Return when the next pending job of a queue is due, or was."""
    run_at: datetime | None = await connection.fetchval(_NEXT_RUN_AT, queue)
    return run_at

"""The SQL of claims, and of what is known of jobs that are to be claimed."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING
from uuid import UUID

from pgwake.database.statements import Connection

if TYPE_CHECKING:
    import asyncpg

# A row a job, and then one that says the rest. Times as seconds since 1970: to read a
# timestamp takes Python as long as the other columns of a row together.
_CLAIM = """
select c.id, c.lease_id, c.kind, c.payload, c.attempt, c.max_attempts,
  date_part('epoch', c.lease_expires_at), date_part('epoch', c.created_at),
  c.metadata, c.options,
  case when c.id is null then row(
    date_part('epoch', c.next_run_at) - date_part('epoch', c.claimed_at),
    date_part('epoch', c.claimed_at), c.next_cursor, c.is_limited, c.left_out_id{}) end
from {}
"""
_CLAIM_ROWS = _CLAIM.format("", "pgwake.claim_rows($1, $2, $3, $4, $5, $6, $7) as c")
# It asks for the outcomes, so the ends come first; and by the clock, so that it sees
# what they have admitted.
_END_AND_CLAIM = _CLAIM.format(
    ", e.outcomes",
    "pgwake.complete_jobs($8, $9, $10::text[]::jsonb[]) as e(outcomes)"
    " cross join lateral pgwake.claim_rows("
    "case when e.outcomes is not null"
    " and set_config('pgwake.claims_by_clock', 'on', true) = 'on' then $1 end,"
    " $2, $3, $4, $5, $6, $7) as c",
)
_LEASES_OF = """
select j.id, j.lease_id
from pgwake.jobs as j
where j.status = 'running' and j.claimed_by = $1
order by j.id
"""
_NEXT_SUSPECT_AT = """
select extract(epoch from s.at - pgwake.now())::float8,
  (select count(*) from pgwake.workers as w where pgwake.is_live(w.seen_at))
from pgwake.next_suspect_run_at($1) as s(at)
"""
_NEXT_RUN_AT = "select pgwake.next_run_at($1)"


@dataclass(frozen=True, slots=True)
class Claim:
    """What a claim answered, by the database's clock.

    Attributes:
        queue: The queue.
        jobs: The claimed jobs, as Job takes them.
        seconds_to_next: From the claim to the next due job; None if none is known, not
            positive if one is left: locked by somebody, or one too many that crashed.
        claimed_at: When the claim was, in seconds since 1970.
        cursor: For the next claim of the queue.
        is_limited: Whether max_running or a rate leaves little room: claim no more
            than can be run now.
        left_out_id: Of the jobs that were left out since nobody here knows their kind,
            the one that has become due last; None if there is none.
        outcomes: Of the ends that were written with it.
    """

    queue: str
    jobs: "Sequence[asyncpg.Record]"
    seconds_to_next: float | None
    claimed_at: float
    cursor: str | None
    is_limited: bool
    left_out_id: int | None = None
    outcomes: Sequence[str] = ()

    @property
    def leaves_due(self) -> bool:
        """Whether a job that is due has been left."""
        return self.seconds_to_next is not None and self.seconds_to_next <= 0


async def claim_rows(
    connection: Connection,
    queue: str,
    count: int,
    worker: str,
    lease: timedelta | None,
    cursor: str | None = None,
    *,
    suspects: bool = False,
    unknown_kinds: Sequence[str] = (),
    ends: Sequence[object] = (),
) -> Claim:
    """Claim up to count due jobs; see sql/functions/claim/claim_rows.sql.

    With ends, which are what complete_jobs takes, these are written first, in the same
    transaction.
    """
    jobs = await connection.fetch(
        _END_AND_CLAIM if ends else _CLAIM_ROWS,
        *(queue, count, worker, lease, cursor, suspects, unknown_kinds or None),
        *ends,
    )
    *_, said = jobs.pop()
    return Claim(queue, jobs, *said)


async def leases_of(connection: Connection, worker: str) -> list[tuple[int, UUID]]:
    """Return (id, lease_id) of the jobs that a worker has claimed and not ended."""
    rows = await connection.fetch(_LEASES_OF, worker)
    return [(row[0], row[1]) for row in rows]


async def seconds_to_suspect(
    connection: Connection, queues: Sequence[str]
) -> float | None:
    """Seconds until a suspect of these queues is due (negative: since); or None."""
    seconds, _ = await next_suspect(connection, queues)
    return seconds


async def next_suspect(
    connection: Connection, queues: Sequence[str]
) -> tuple[float | None, int]:
    """As seconds_to_suspect; and how many workers are live."""
    (row,) = await connection.fetch(_NEXT_SUSPECT_AT, queues)
    return row[0], row[1]


async def next_run_at(connection: Connection, queue: str) -> datetime | None:
    """Return when the next pending job of a queue is due, or was."""
    run_at: datetime | None = await connection.fetchval(_NEXT_RUN_AT, queue)
    return run_at

"""What producers ask: statements for any driver, a text as argument and as answer.

The argument is `$1`; drivers with another mark put theirs in its place.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from typing import Any, Generic, TypeVar

from pgwake.database.statements import Connection
from pgwake.jsontext import loads

T = TypeVar("T")

_ENQUEUE = """
select pgwake.enqueue({arguments})::text
from jsonb_to_record(cast($1 as text)::jsonb) as j({columns})
"""
_ENQUEUE_MANY = """
select array_to_json(pgwake.enqueue_many(cast($1 as text)::jsonb))::text
"""
_NOW = "select to_json(pgwake.now() + cast($1 as text)::interval)::text"
_GET_JOB = "select pgwake.get_job(cast($1 as text)::bigint)::text"
_CANCEL_JOB = "select pgwake.cancel_job(cast($1 as text)::bigint)"
_RETRY_JOB = "select pgwake.retry_job(cast($1 as text)::bigint)::text"
_EMIT_EVENT = """
select to_json(pgwake.emit_event(e.name, e.payload, coalesce(e.keep, '30 days')))::text
from jsonb_to_record(cast($1 as text)::jsonb)
  as e(name text, payload jsonb, keep interval)
"""
_STATS = """
select coalesce(
  json_agg(to_jsonb(s) || jsonb_build_object(
    'oldest_pending_age', extract(epoch from s.oldest_pending_age))),
  '[]')::text
from pgwake.get_queue_stats(cast($1 as text)) as s
"""
# A row version that is seen, though its transaction has not ended, is of this very
# transaction. xmin is the low half of its id, which is near the next that is given out.
_LOOK = """
select json_build_object(
  'job', (
    select json_build_object(
      'id', g.job -> 'id', 'queue', g.job -> 'queue', 'kind', g.job -> 'kind',
      'status', g.job -> 'status', 'result', (g.job -> 'result')::text,
      'errors', g.job -> 'errors')
    from pgwake.get_job(cast($1 as text)::bigint) as g(job)),
  'is_own', exists (
    select
    from pgwake.jobs_live as j
    cross join pg_snapshot_xmax(pg_current_snapshot()) as s(xmax)
    cross join lateral (
      values (s.xmax::text::bigint, j.xmin::text::bigint)) as x(next, low)
    cross join lateral (
      values (x.next + ((x.low - x.next + 2147483648) & 4294967295) - 2147483648)
    ) as w(whole)
    where j.id = cast($1 as text)::bigint and x.low > 2 and w.whole > 2
      and pg_xact_status(w.whole::text::xid8) = 'in progress'),
  'snapshot_at', case
    when current_setting('transaction_isolation') <> 'read committed' then now()
  end
)::text
"""
_WATCH = "select pgwake.watch()"


@dataclass(frozen=True, slots=True)
class Query(Generic[T]):
    """A statement, its argument, and how its answer is read."""

    sql: str
    argument: str | None
    read: Callable[[str], T]


@dataclass(frozen=True, slots=True)
class JobSnapshot:
    """What a job is like just now.

    Attributes:
        job: id, queue, kind, status, result as JSON text, errors.
        is_own: Whether the asking transaction itself has made or changed it, so that
            no worker sees that yet.
        snapshot_at: When the asking transaction began, if it sees nothing newer; else
            None.
    """

    job: dict[str, Any]
    is_own: bool
    snapshot_at: str | None


@cache
def _enqueue(types: tuple[tuple[str, str], ...]) -> str:
    return _ENQUEUE.format(
        arguments=", ".join(f"{name} => j.{name}" for name, _ in types),
        columns=", ".join(map(" ".join, types)),
    )


def enqueue(job: str, types: tuple[tuple[str, str], ...]) -> Query[int]:
    """Add a job, a JSON object; its id.

    Args:
        job: The job.
        types: The fields that it may have, each with its type in SQL.
    """
    return Query(_enqueue(types), job, int)


def copy(columns: Sequence[str]) -> str:
    """Return the COPY that adds jobs, given by these columns."""
    return f"copy pgwake.jobs ({', '.join(columns)}) from stdin"


def enqueue_many(jobs: str) -> Query[list[int]]:
    """Add jobs, a JSON array; their ids in that order."""
    return Query(_ENQUEUE_MANY, jobs, json.loads)


def enqueue_one(jobs: str) -> Query[int]:
    """Add the one job of a JSON array; its id."""
    return Query(_ENQUEUE_MANY, jobs, lambda ids: int(json.loads(ids)[0]))


def now() -> Query[datetime]:
    """Tell the database's time."""
    return Query(_NOW, "0", _instant)


def get_job(job_id: int) -> Query[dict[str, Any]]:
    """Return a job, all columns."""
    return Query(_GET_JOB, str(job_id), _job)


def cancel_job(job_id: int) -> Query[str]:
    """Cancel a job; what became of it."""
    return Query(_CANCEL_JOB, str(job_id), str)


def retry_job(job_id: int) -> Query[None]:
    """Make a failed or cancelled job pending again."""
    return Query(_RETRY_JOB, str(job_id), lambda _: None)


def emit_event(event: str) -> Query[bool]:
    """Emit an event, a JSON object: name, payload, keep; whether it is the first."""
    return Query(_EMIT_EVENT, event, json.loads)


def stats(queue: str | None) -> Query[list[dict[str, Any]]]:
    """Count what stands in a queue, or in all (None)."""
    return Query(_STATS, queue, _stats)


def look(job_id: int) -> Query[JobSnapshot]:
    """Look whether a job has ended."""
    return Query(_LOOK, str(job_id), lambda text: JobSnapshot(**json.loads(text)))


async def answer(connection: Connection, question: Query[T]) -> T:
    """Ask on a connection of asyncpg."""
    return question.read(await connection.fetchval(question.sql, question.argument))


def _instant(text: str) -> datetime:
    return datetime.fromisoformat(json.loads(text))


def _job(text: str) -> dict[str, Any]:
    job: dict[str, Any] = loads(text)
    return {
        name: datetime.fromisoformat(value)
        if name.endswith("_at") and value is not None
        else value
        for name, value in job.items()
    }


def _stats(text: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(text)
    for row in rows:
        seconds = row["oldest_pending_age"]
        row["oldest_pending_age"] = (
            None if seconds is None else timedelta(seconds=seconds)
        )
    return rows


async def watch(connection: Connection) -> None:
    """Ask for status events, for as long as the session lives."""
    await connection.execute(_WATCH)

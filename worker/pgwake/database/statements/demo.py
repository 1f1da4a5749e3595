"""The SQL of `pgwake demo`: what a producer inserts, and what came of it."""

from collections.abc import Sequence
from typing import Any

from pgwake.database.statements import Connection

_PING = """
insert into pgwake.jobs (queue, kind, payload)
values ('demo', 'demo_ping', jsonb_build_object('sent_at', $1::float8))
returning id
"""
_PING_MS = """
select (j.result ->> 'ms')::float8
from pgwake.jobs as j
where j.id = $1 and j.status = 'completed'
"""
_INSERT_SPECIAL = """
insert into pgwake.jobs (queue, kind, max_attempts, priority, run_at)
select 'demo', s.kind, s.max_attempts, 10, now() + s.delay
from (values ('demo_flaky',     null, interval '0 seconds'),
             ('demo_doomed',       3, interval '0 seconds'),
             ('demo_killer',    null, interval '1 second'),
             ('demo_delayed',   null, interval '3 seconds'),
             ('demo_cancelled', null, interval '1 hour')
     ) as s(kind, max_attempts, delay)
returning id
"""
_INSERT_FILES = """
insert into pgwake.jobs (queue, kind, payload)
select 'demo', 'demo_file', jsonb_build_object('path', f.path)
from unnest($1::text[]) as f(path)
returning id
"""
_CANCEL = """
select count(pgwake.cancel_job(j.id)) from pgwake.jobs_live as j where j.id = any ($1)
"""
_COUNTS = """
select
  count(*) filter (where j.status = 'pending') as pending,
  count(*) filter (where j.status = 'running') as running,
  count(*) filter (where j.status = 'completed') as completed,
  count(*) filter (where j.status = 'failed') as failed,
  count(*) filter (where j.status = 'cancelled') as cancelled,
  count(*) filter (where j.finished_at > now() - interval '1 second') as "jobs/s"
from pgwake.jobs as j
where j.id = any ($1)
"""
_OUTCOMES = """
select coalesce(j.status, 'missing') as status, coalesce(j.attempt, 0) as attempt,
  coalesce(j.crash_count, 0) as crashes, coalesce(j.result, '{}')::text as result,
  (select count(*) from jsonb_array_elements(j.errors) as e(entry)
   where e.entry ->> 'reason' = 'failed') as failures,
  extract(epoch from j.finished_at - j.created_at)::float8 as seconds,
  coalesce(round(1000 * extract(epoch from
    j.started_at - coalesce((j.errors -> -1 ->> 'at')::timestamptz, j.run_at)
  )::numeric, 1), -1) as late_ms
from unnest($1::bigint[]) with ordinality as k(id, place)
left join pgwake.jobs as j on j.id = k.id
order by k.place
"""


async def ping(connection: Connection, sent_at: float) -> int:
    """Insert a job that measures its own wake-up; its id."""
    job_id: int = await connection.fetchval(_PING, sent_at)
    return job_id


async def ping_ms(connection: Connection, job_id: int) -> float | None:
    """Return how long a ping took to its handler; None while it is not completed."""
    ms: float | None = await connection.fetchval(_PING_MS, job_id)
    return ms


async def insert(connection: Connection, paths: Sequence[str]) -> list[int]:
    """Insert the special jobs, then one for each file; their ids, in this order."""
    async with connection.transaction():
        rows = await connection.fetch(_INSERT_SPECIAL)
        rows += await connection.fetch(_INSERT_FILES, paths)
    return [row["id"] for row in rows]


async def cancel(connection: Connection, ids: Sequence[int]) -> int:
    """Cancel those that have not ended; how many."""
    count: int = await connection.fetchval(_CANCEL, ids)
    return count


async def counts(connection: Connection, ids: Sequence[int]) -> dict[str, int]:
    """Count the jobs by status, and those that have ended in the last second."""
    row = await connection.fetchrow(_COUNTS, ids)
    assert row is not None  # noqa: S101, an aggregate has one row
    return dict(row)


async def outcomes(connection: Connection, ids: Sequence[int]) -> list[dict[str, Any]]:
    """Return what became of each; late after it was due, or given back by a crash."""
    return [dict(row) for row in await connection.fetch(_OUTCOMES, ids)]

"""The SQL of what stands in the queues, and who works on them."""

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any

from pgwake.database.statements import Connection
from pgwake.jsontext import JsonText

_GET_QUEUE_STATS = "select * from pgwake.get_queue_stats($1)"
_GET_JOB = "select pgwake.get_job($1)"
_GET_ENDED = """
select j.job ->> 'status' as status,
  (j.job ->> 'finished_at')::timestamptz as finished_at,
  jsonb_build_object(
    'attempt', j.job -> 'attempt', 'created_at', j.job -> 'created_at',
    'started_at', j.job -> 'started_at', 'metadata', j.job -> 'metadata',
    'result', j.job -> 'result',
    'error', case
      when j.job ->> 'status' <> 'completed'
        and jsonb_typeof(j.job -> 'errors') = 'array'
      then j.job -> 'errors' -> -1 #- '{traceback}' end)::text as told
from pgwake.get_job($1) as j(job)
"""
_LIST_WORKERS = """
select l.*, w.slots
from pgwake.list_workers() as l join pgwake.workers as w on w.name = l.name
order by l.name
"""
_LIST_KINDS = "select * from pgwake.list_kinds()"
_UNHANDLED_KINDS = """
select k.name
from pgwake.list_kinds() as k
where k.live_worker_count = 0 and k.bounced_at > pgwake.now() - interval '1 hour'
"""
LIST_WINDOW = 100_000  # ids, among which a list looks before it goes on
# For the arguments: those that are null leave out a condition.
_PLAN_ANEW = """
set local plan_cache_mode = force_custom_plan;
set local jit = off
"""
_NEWEST = """
select j.id
from pgwake.jobs as j
where ($1::text is null or j.status = $1) and ($2::bigint is null or j.id < $2)
order by j.id desc
limit 1
"""
_LIST_JOBS = """
select j.id, j.queue, j.kind, j.status, j.priority, j.run_at, j.attempt, j.crash_count,
  j.concurrency_key, j.progress::text, j.metadata::text, j.claimed_by, j.created_at,
  j.started_at, j.finished_at
from pgwake.jobs as j
where ($1::text is null or j.queue = $1) and ($2::text is null or j.kind = $2)
  and ($3::text is null or j.status = $3) and j.id <= $4 and j.id >= $10
  and ($6::text is null or j.concurrency_key = $6)
  and ($7::text is null or j.unique_key = $7)
  and ($8::text is null or j.claimed_by = $8)
  and ($9::text is null or j.payload @> $9::text::jsonb)
order by j.id desc
limit $5
"""
_IN_PROGRESS = """
select j.id, j.queue, j.kind, j.started_at, j.claimed_by, j.progress::text
from pgwake.jobs_live as j
where j.status = 'running' and j.progress is not null
  and ($1::text is null or j.queue = $1)
order by j.started_at
limit $2
"""
_GET_METRICS = """
select m.*, coalesce(r.retried_total, 0) as retried_total,
  extract(epoch from clock_timestamp() - statement_timestamp())::float8 as seconds
from pgwake.get_metrics() as m
left join pgwake.count_retries() as r on r.queue = m.queue
order by m.queue nulls first
"""
LIST_QUEUES = """
select coalesce(q.name, s.queue) as name,
  coalesce(q.paused_until > pgwake.now(), false) as is_paused,
  case when q.paused_until > pgwake.now() then q.paused_until::text end as paused_until,
  q.max_running, q.rate_limit, q.rate_burst, q.key_limit, q.key_rate, q.key_burst,
  q.max_pending,
  coalesce(
    jsonb_strip_nulls(to_jsonb(q) - array[
        'name', 'paused_until', 'max_running', 'rate_limit', 'rate_burst', 'key_limit',
        'key_rate', 'key_burst', 'max_pending'])
      - case when q.keep_order then '' else 'keep_order' end
      - case when q.drop_payloads then '' else 'drop_payloads' end
      - case q.wakeups when 'asleep' then 'wakeups' else '' end
      - case q.status_events when 'watched' then 'status_events' else '' end,
    '{}') as policy,
  k.keys, k.key_rates,
  coalesce(s.pending_count, 0) as pending_count,
  coalesce(s.scheduled_count, 0) as scheduled_count,
  coalesce(s.waiting_count, 0) as waiting_count,
  coalesce(s.running_count, 0) as running_count,
  coalesce(s.failed_count, 0) as failed_count
from pgwake.queues as q
full join pgwake.get_queue_stats() as s on s.queue collate "C" = q.name
cross join lateral (
  select coalesce(jsonb_object_agg(l.key, l.max_running)
      filter (where l.max_running is not null), '{}') as keys,
    coalesce(jsonb_object_agg(l.key, l.rate_limit)
      filter (where l.rate_limit is not null), '{}') as key_rates
  from pgwake.concurrency_limits as l
  where l.queue = coalesce(q.name, s.queue)
) as k
order by coalesce(q.name, s.queue collate "C")
"""


async def get_queue_stats(
    connection: Connection, queue: str | None = None
) -> list[dict[str, Any]]:
    """Return the statistics, a dict a queue."""
    return [dict(row) for row in await connection.fetch(_GET_QUEUE_STATS, queue)]


async def get_job(connection: Connection, job_id: int) -> str:
    """Return one job as JSON text."""
    job: str = await connection.fetchval(_GET_JOB, job_id)
    return job


async def get_ended(
    connection: Connection, job_id: int
) -> tuple[str, datetime | None, str]:
    """Return a job's status, when it ended, and what is told of its end.

    The last is a JSON object, as text: attempt, created_at, started_at, metadata,
    result, and error, the last failed attempt without its traceback.
    """
    row = await connection.fetchrow(_GET_ENDED, job_id)
    assert row is not None  # noqa: S101, no such job is an error
    return row["status"], row["finished_at"], row["told"]


async def list_workers(connection: Connection) -> list[dict[str, Any]]:
    """Return the workers that report themselves."""
    return [dict(row) for row in await connection.fetch(_LIST_WORKERS)]


async def list_kinds(connection: Connection) -> list[dict[str, Any]]:
    """Return the kinds that are known; their policy as dicts."""
    return [
        {
            **row,
            "declared": json.loads(row["declared"]),
            "overrides": json.loads(row["overrides"]),
        }
        for row in await connection.fetch(_LIST_KINDS)
    ]


async def unhandled_kinds(connection: Connection) -> list[str]:
    """Return the kinds that came back within the hour and that no worker handles."""
    return [row[0] for row in await connection.fetch(_UNHANDLED_KINDS)]


async def list_jobs(
    connection: Connection,
    *,
    queue: str | None,
    kind: str | None,
    status: str | None,
    before: int | None,
    limit: int,
    concurrency_key: str | None = None,
    unique_key: str | None = None,
    worker: str | None = None,
    payload: str | None = None,
    tell: Callable[[int], None] = lambda _: None,
) -> list[dict[str, Any]]:
    """Return jobs, the newest first, before an id.

    Args:
        connection: Where to ask.
        queue: Only of this queue; None: of all. Likewise the next ones.
        kind: Only of this kind.
        status: Only in this state.
        before: Only with ids below this.
        limit: How many at most.
        concurrency_key: Only with this key.
        unique_key: Only with this key.
        worker: Only claimed by this worker.
        payload: Only with a payload that contains this, JSON text.
        tell: Called with the id that was come to, as often as more have to be read.
    """
    rows: list[Any] = []
    async with connection.transaction():
        await connection.execute(_PLAN_ANEW)
        while len(rows) < limit:
            newest = await connection.fetchval(_NEWEST, status, before)
            if newest is None:
                break
            if before is not None:
                tell(newest)
            before = newest - 10 * LIST_WINDOW + 1  # a statement is 10 ms of planning
            rows += await connection.fetch(
                _LIST_JOBS,
                queue,
                kind,
                status,
                newest,
                limit - len(rows),
                concurrency_key,
                unique_key,
                worker,
                payload,
                before,
            )
    return [
        {
            **row,
            "progress": JsonText.of(row["progress"]),
            "metadata": JsonText.of(row["metadata"]),
        }
        for row in rows
    ]


async def jobs_in_progress(
    connection: Connection, queue: str | None, limit: int
) -> list[dict[str, Any]]:
    """Return running jobs that say how far they are, the longest-running first."""
    rows = await connection.fetch(_IN_PROGRESS, queue, limit)
    return [{**row, "progress": JsonText.of(row["progress"])} for row in rows]


async def get_metrics(
    connection: Connection,
    timeout: float,  # noqa: ASYNC109, asyncpg cancels the statement on the server
) -> list[dict[str, Any]]:
    """Return what get_metrics and count_retries do, first a row without a queue.

    Each row has in `seconds` how long the server took.

    Raises:
        TimeoutError: It has taken longer than `timeout`, in seconds.
    """
    rows = await connection.fetch(_GET_METRICS, timeout=timeout)
    return [dict(row) for row in rows]


async def list_queues(connection: Connection) -> list[dict[str, Any]]:
    """Return every queue that has jobs or policy; keys and other policy as dicts."""
    return [
        {**row, **{name: json.loads(row[name]) for name in ("keys", "policy")}}
        for row in await connection.fetch(LIST_QUEUES)
    ]

"""The SQL of what people do to jobs and queues."""

from datetime import datetime, timedelta
from typing import Any

from pgwake.database.statements import Connection
from pgwake.jsontext import JsonText

_PEEK_JOBS = "select * from pgwake.peek_jobs($1, $2)"
_EXPLAIN_JOB = "select pgwake.explain_job($1)"
_LIST_FAILED = "select * from pgwake.list_failed($1, $2, $3, $4)"
_RETRY_FAILED = "select * from pgwake.retry_failed($1, $2, $3, $4, $5, $6, $7)"
_CANCEL_JOBS = "select * from pgwake.cancel_jobs($1, $2, $3, $4, $5, $6, $7)"
_UPDATE_JOBS = """
select * from pgwake.update_jobs($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
"""
_PURGE = "select pgwake.purge($1, $2, $3, $4, $5, $6, $7)"
_PAUSE_QUEUE = """
select nullif(p.until, 'infinity')
from pgwake.pause_queue($1, coalesce($2, pgwake.now() + $3::interval, 'infinity'))
  as p(until)
"""
_RESUME_QUEUE = "select pgwake.resume_queue($1)"
_LIMITS = (
    "max_running",
    "rate_limit",
    "rate_burst",
    "key_limit",
    "key_rate",
    "key_burst",
    "max_pending",
)
_KEY_LIMITS = {"key_limit": "max_running", "key_rate": "rate_limit"}
_KIND_LIMITS = _LIMITS[:3]
_GET_LIMITS = """
select {} from pgwake.{} as t where t.name = $1
"""
_GET_KEY_LIMITS = """
select l.key, l.max_running, l.rate_limit from pgwake.concurrency_limits as l
where l.queue = $1
order by l.key
limit 1000
"""
_SET_LIMITS = """
insert into pgwake.{table} as t (name, {names}) values ($1, {values})
on conflict (name) do update set {changes}
"""
_GET_DROP_PAYLOADS = """
select coalesce(bool_or(q.drop_payloads), false)
from pgwake.queues as q
where q.name = $1
"""
_SET_DROP_PAYLOADS = """
insert into pgwake.queues (name, drop_payloads) values ($1, $2)
on conflict (name) do update set drop_payloads = excluded.drop_payloads
"""
_SET_KEY_LIMITS = """
with wanted as (
  select
    case when 'max_running' = any ($3::text[]) then $4::int else l.max_running end,
    case when 'rate_limit' = any ($3::text[]) then $5::float8 else l.rate_limit end
  from (values ($1::text, $2::text)) as v(queue, key)
  left join pgwake.concurrency_limits as l on l.queue = v.queue and l.key = v.key
),
dropped as (
  delete from pgwake.concurrency_limits as l using wanted as w(max_running, rate_limit)
  where l.queue = $1 and l.key = $2 and num_nonnulls(w.max_running, w.rate_limit) = 0
)
insert into pgwake.concurrency_limits (queue, key, max_running, rate_limit)
select $1, $2, w.max_running, w.rate_limit from wanted as w(max_running, rate_limit)
where num_nonnulls(w.max_running, w.rate_limit) > 0
on conflict (queue, key) do update
set max_running = excluded.max_running, rate_limit = excluded.rate_limit
"""


async def peek_jobs(
    connection: Connection, queue: str, limit: int
) -> list[dict[str, Any]]:
    """Return the due jobs of a queue in the order of a claim."""
    return [
        {**row, "payload": JsonText(row["payload"])}
        for row in await connection.fetch(_PEEK_JOBS, queue, limit)
    ]


async def explain_job(connection: Connection, job_id: int) -> str:
    """Return in words why a job is not running."""
    text: str = await connection.fetchval(_EXPLAIN_JOB, job_id)
    return text


async def list_failed(
    connection: Connection,
    queue: str | None,
    kind: str | None,
    fingerprint: str | None,
    limit: int | None,
) -> list[dict[str, Any]]:
    """Return the dead letters, a dict a group."""
    rows = await connection.fetch(_LIST_FAILED, queue, kind, fingerprint, limit)
    return [dict(row) for row in rows]


async def retry_failed(
    connection: Connection,
    queue: str | None,
    kind: str | None,
    fingerprint: str | None,
    limit: int,
    rate: float | None,
    patch: str | None,
    *,
    dry_run: bool,
) -> list[dict[str, Any]]:
    """Make dead letters pending again; a dict a job, with its outcome."""
    return [
        {**row, "payload": JsonText(row["payload"])}
        for row in await connection.fetch(
            _RETRY_FAILED, queue, kind, fingerprint, limit, rate, patch, dry_run
        )
    ]


async def cancel_jobs(
    connection: Connection,
    queue: str | None,
    kind: str | None,
    concurrency_key: str | None,
    unique_key: str | None,
    status: str | None,
    limit: int,
    *,
    dry_run: bool,
) -> dict[str, int]:
    """Cancel the jobs that match; how many by outcome."""
    rows = await connection.fetch(
        _CANCEL_JOBS, queue, kind, concurrency_key, unique_key, status, limit, dry_run
    )
    return {row[0]: row[1] for row in rows}


async def update_jobs(
    connection: Connection,
    changes: str,
    ids: list[int] | None,
    filters: tuple[str | None, ...],
    after: int | None,
    limit: int,
    *,
    dry_run: bool,
) -> dict[str, list[int]]:
    """Change jobs that wait; the ids by outcome.

    Args:
        connection: Where.
        changes: What is to be different, a JSON object.
        ids: Which jobs; None: those that match.
        filters: queue, kind, concurrency key, unique key, status.
        after: Only jobs with a greater id.
        limit: How many at most.
        dry_run: Whether it is only said.
    """
    rows = await connection.fetch(
        _UPDATE_JOBS, changes, ids, *filters, after, limit, dry_run
    )
    return {row["outcome"]: row["ids"] for row in rows}


async def purge(
    connection: Connection,
    status: str,
    queue: str | None,
    kind: str | None,
    fingerprint: str | None,
    before: datetime | None,
    limit: int,
    *,
    dry_run: bool,
) -> int:
    """Delete the ended jobs that match; how many."""
    count: int = await connection.fetchval(
        _PURGE, status, queue, kind, fingerprint, before, limit, dry_run
    )
    return count


async def pause_queue(
    connection: Connection,
    queue: str,
    *,
    until: datetime | None = None,
    duration: timedelta | None = None,
) -> datetime | None:
    """Pause a queue; until when, None: until it is resumed."""
    paused_until: datetime | None = await connection.fetchval(
        _PAUSE_QUEUE, queue, until, duration
    )
    return paused_until


async def resume_queue(connection: Connection, queue: str) -> bool:
    """End a queue's pause; whether it was paused."""
    was_paused: bool = await connection.fetchval(_RESUME_QUEUE, queue)
    return was_paused


async def get_limits(connection: Connection, queue: str) -> dict[str, Any]:
    """Return a queue's limits; under keys and key_rates those of single keys."""
    limits = await _get_limits(connection, "queues", _LIMITS, queue)
    keys = [tuple(row) for row in await connection.fetch(_GET_KEY_LIMITS, queue)]
    limits["keys"] = {key: most for key, most, _ in keys if most is not None}
    limits["key_rates"] = {key: rate for key, _, rate in keys if rate is not None}
    return limits


async def _get_limits(
    connection: Connection, table: str, names: tuple[str, ...], name: str
) -> dict[str, Any]:
    sql = _GET_LIMITS.format(", ".join(names), table)
    row = await connection.fetchrow(sql, name)
    return dict.fromkeys(names) if row is None else dict(row)


async def set_limits(
    connection: Connection, queue: str, changes: dict[str, Any]
) -> None:
    """Change some of a queue's limits; None: no such limit."""
    await _set_limits(connection, "queues", _LIMITS, queue, changes)


async def change_kind_limits(
    connection: Connection, kind: str, changes: dict[str, Any]
) -> dict[str, Any]:
    """Change some of max_running, rate_limit and rate_burst of a kind; all.

    None: no such limit.
    """
    if changes:
        await _set_limits(connection, "kinds", _KIND_LIMITS, kind, changes)
    return await _get_limits(connection, "kinds", _KIND_LIMITS, kind)


async def _set_limits(
    connection: Connection,
    table: str,
    names: tuple[str, ...],
    name: str,
    changes: dict[str, Any],
) -> None:
    sql = _SET_LIMITS.format(
        table=table,
        names=", ".join(names),
        values=", ".join(f"${place}" for place, _ in enumerate(names, 3)),
        changes=", ".join(
            f"{name} = case when '{name}' = any ($2::text[])"
            f" then excluded.{name} else t.{name} end"
            for name in names
        ),
    )
    await connection.execute(sql, name, list(changes), *map(changes.get, names))


async def set_key_limits(
    connection: Connection, queue: str, key: str, changes: dict[str, Any]
) -> None:
    """Change max_running or rate_limit of one concurrency key.

    None: as its queue says.
    """
    values = changes.get("max_running"), changes.get("rate_limit")
    await connection.execute(_SET_KEY_LIMITS, queue, key, list(changes), *values)


async def change_limits(
    connection: Connection, queue: str, key: str | None, changes: dict[str, Any]
) -> dict[str, Any]:
    """Change some of a queue's limits, or key_limit and key_rate of a key; all."""
    if key is not None:
        own = {_KEY_LIMITS[name]: value for name, value in changes.items()}
        await set_key_limits(connection, queue, key, own)
    elif changes:
        await set_limits(connection, queue, changes)
    return await get_limits(connection, queue)


async def set_drop_payloads(
    connection: Connection, queue: str, *, drop: bool | None
) -> bool:
    """Have a queue drop the payloads of jobs that complete, or keep them.

    None: neither. Returns whether it drops them now.
    """
    if drop is not None:
        await connection.execute(_SET_DROP_PAYLOADS, queue, drop)
    drops: bool = await connection.fetchval(_GET_DROP_PAYLOADS, queue)
    return drops

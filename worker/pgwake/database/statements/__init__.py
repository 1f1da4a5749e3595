"""The queue's SQL: the one package with SQL text, a function for each of pgwake's."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import ceil
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias
from uuid import UUID

if TYPE_CHECKING:
    import asyncpg

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"

SCHEMA_VERSION = 2
CHANNEL = "pgwake"
BATON_CHANNEL = "pgwake_baton"
CANCEL_CHANNEL = "pgwake_cancel"

# A row a job, the first with what is said of all, and at least that one. As one array
# the server would keep a kilobyte for each field of each job until all of it is sent.
_CLAIM_BATCH = """
select a.job, case when a.place = 1 then a.seconds_to_next end,
  case when a.place = 1 then a.claimed_at end, case when a.place = 1 then a.cursor end,
  case when a.place = 1 then a.is_limited end
from (
  select b.claimed_at, b.cursor, b.is_limited,
    extract(epoch from b.next_run_at - b.claimed_at)::float8 as seconds_to_next,
    unnest(case when b.jobs = '{}' then array[null::pgwake.claimed_job]
      else b.jobs end) as job,
    generate_series(1, greatest(cardinality(b.jobs), 1)) as place
  from pgwake.claim_batch($1, $2, $3, $4, $5, $6) as b
) as a
"""
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
_LEASES_OF = """
select j.id, j.lease_id
from pgwake.jobs as j
where j.status = 'running' and j.claimed_by = $1
order by j.id
"""
_EXTEND_LEASES = "select pgwake.extend_leases($1, $2, $3)"
_RELEASE_WORKER_JOBS = "select * from pgwake.release_worker_jobs($1)"
_NEXT_SUSPECT_AT = """
select extract(epoch from s.at - pgwake.now())::float8
from pgwake.next_suspect_at($1) as s(at)
where s.at is not null
"""
_MAINTAIN = "select pgwake.maintain($1)"
_PARK = "select pgwake.park($1, $2)"
_MUTE = "select pgwake.mute($1)"
_UNMUTE = "select pgwake.unmute($1)"
_UNPARK = "select pgwake.unpark($1, $2)"
_BATON = "select pgwake.pass_baton($1)"
_OPEN_WRITERS = "select pgwake.open_writers()"
_END_SESSION = """
select pg_terminate_backend(a.pid, 1000)
from pg_stat_activity as a
where a.pid = $1 and a.backend_start = $2 and a.datname = current_database()
"""
_SESSION_ID = """
select a.pid, a.backend_start from pg_stat_activity as a where a.pid = pg_backend_pid()
"""
_GET_QUEUE_STATS = "select * from pgwake.get_queue_stats($1)"
_GET_JOB = "select pgwake.get_job($1)"
_ENQUEUE = """
select pgwake.enqueue($1, $2, queue => $3, priority => $4, run_at => $5, delay => $6,
                      max_attempts => $7, unique_key => $8, on_conflict => $9,
                      concurrency_key => $10, depends_on => $11,
                      on_parent_failure => $12, webhook => $13)
"""
_REPORT_WORKER = "select pgwake.report_worker($1, $2, $3, $4, $5, $6)"
_FORGET_WORKER = "select pgwake.forget_worker($1)"
_LIST_WORKERS = "select * from pgwake.list_workers()"
_LIST_KINDS = "select * from pgwake.list_kinds()"
_UNHANDLED_KINDS = """
select k.name
from pgwake.list_kinds() as k
where k.live_worker_count = 0 and k.bounced_at > pgwake.now() - interval '1 hour'
"""
_LIST_JOBS = """
select j.id, j.queue, j.kind, j.status, j.priority, j.run_at, j.attempt, j.crash_count,
  j.concurrency_key, j.progress::text, j.claimed_by, j.created_at, j.started_at,
  j.finished_at
from pgwake.jobs as j
where ($1::text is null or j.queue = $1) and ($2::text is null or j.kind = $2)
  and ($3::text is null or j.status = $3) and ($4::bigint is null or j.id < $4)
  and ($6::text is null or j.concurrency_key = $6)
  and ($7::text is null or j.unique_key = $7)
  and ($8::text is null or j.claimed_by = $8)
  and ($9::text is null or j.payload @> $9::text::jsonb)
order by j.id desc
limit $5
"""
_PEEK_JOBS = "select * from pgwake.peek_jobs($1, $2)"
_NEXT_RUN_AT = "select pgwake.next_run_at($1)"
_EXPLAIN_JOB = "select pgwake.explain_job($1)"
_LIST_FAILED = "select * from pgwake.list_failed($1, $2, $3, $4)"
_RETRY_JOB = "select pgwake.retry_job($1)"
_RETRY_FAILED = "select * from pgwake.retry_failed($1, $2, $3, $4, $5, $6, $7)"
_CANCEL_JOB = "select pgwake.cancel_job($1)"
_CANCEL_JOBS = "select * from pgwake.cancel_jobs($1, $2, $3, $4, $5, $6, $7)"
_PURGE = "select pgwake.purge($1, $2, $3, $4, $5, $6, $7)"
_PAUSE_QUEUE = """
select nullif(p.until, 'infinity')
from pgwake.pause_queue($1, coalesce($2, pgwake.now() + $3::interval, 'infinity'))
  as p(until)
"""
_RESUME_QUEUE = "select pgwake.resume_queue($1)"
_GET_LIMITS = """
select q.max_running, q.rate_limit, q.rate_burst, q.key_limit
from pgwake.queues as q
where q.name = $1
"""
_GET_KEY_LIMITS = """
select l.key, l.max_running from pgwake.concurrency_limits as l
where l.queue = $1
order by l.key
limit 1000
"""
_SET_LIMITS = """
insert into pgwake.queues as q (name, max_running, rate_limit, rate_burst, key_limit)
values ($1, $2, $3, $4, $5)
on conflict (name) do update
set max_running = excluded.max_running, rate_limit = excluded.rate_limit,
  rate_burst = excluded.rate_burst, key_limit = excluded.key_limit
"""
_SET_KEY_LIMIT = """
insert into pgwake.concurrency_limits as l (queue, key, max_running)
values ($1, $2, $3)
on conflict (queue, key) do update set max_running = excluded.max_running
"""
_DROP_KEY_LIMIT = """
delete from pgwake.concurrency_limits as l where l.queue = $1 and l.key = $2
"""
_DECLARE_KINDS = "select pgwake.declare_kinds($1::text::jsonb, $2, $3)"
_SCHEMA_VERSION = """
select v.version, coalesce((to_jsonb(v) ->> 'serves_from')::int, v.version)
from pgwake.schema_version as v
"""
_STANDARD_STRINGS = "set standard_conforming_strings = on"  # when a script is parsed
_PATIENCE = (
    "set local pgwake.lock_patience = '{}ms';"  # begins the script's transaction
)
_HAS_ROLES = """
select exists (
  select from pg_catalog.pg_roles as r
  where r.rolname in ('pgwake_producer', 'pgwake_worker', 'pgwake_admin')
    and has_schema_privilege(r.oid, 'pgwake', 'usage')
)
"""
_IS_READ_ONLY = """
select pg_is_in_recovery() or current_setting('transaction_read_only')::boolean
"""
_SESSION_COUNT = """
select count(*) from pg_stat_activity as a
where a.datname = current_database() and a.application_name = any ($1::text[])
  and (a.state <> 'idle' or not $2)
"""


class Schema(NamedTuple):
    """A schema that is installed.

    Attributes:
        version: Its version.
        serves_from: The oldest version whose workers can use it.
    """

    version: int
    serves_from: int


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
    """

    jobs: "Sequence[asyncpg.Record]"
    seconds_to_next: float | None
    claimed_at: datetime
    cursor: str | None
    is_limited: bool

    @property
    def leaves_due(self) -> bool:
        """Whether a job that is due has been left."""
        return self.seconds_to_next is not None and self.seconds_to_next <= 0


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


async def claim_batch(
    connection: Connection,
    queue: str,
    count: int,
    worker: str,
    lease: timedelta | None,
    cursor: str | None = None,
    *,
    suspects: bool = False,
) -> Claim:
    """Claim up to count due jobs; see sql/functions/claim/claim_batch.sql."""
    rows = await connection.fetch(
        _CLAIM_BATCH, queue, count, worker, lease, cursor, suspects
    )
    first, *said = rows[0]
    jobs = [row[0] for row in rows] if first is not None else []
    return Claim(jobs, *said)


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


async def leases_of(connection: Connection, worker: str) -> list[tuple[int, UUID]]:
    """Return (id, lease_id) of the jobs that a worker has claimed and not ended."""
    rows = await connection.fetch(_LEASES_OF, worker)
    return [(row[0], row[1]) for row in rows]


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


class Crashed(NamedTuple):
    """How many jobs of a kind were taken from dead workers.

    Attributes:
        queue: Their queue.
        kind: Their kind.
        jobs: How many.
        failed: How many of them are failed for good.
        cancelled: How many of them are cancelled, as had been asked for.
    """

    queue: str
    kind: str
    jobs: int
    failed: int
    cancelled: int


async def release_worker_jobs(connection: Connection, worker: str) -> list[Crashed]:
    """Give back what a dead worker had."""
    rows = await connection.fetch(_RELEASE_WORKER_JOBS, worker)
    return [Crashed(*row) for row in rows]


async def seconds_to_suspect(
    connection: Connection, queues: Sequence[str]
) -> float | None:
    """Seconds until a suspect of these queues is due (negative: since); or None."""
    seconds: float | None = await connection.fetchval(_NEXT_SUSPECT_AT, queues)
    return seconds


async def maintain(connection: Connection, step: str) -> dict[str, Any]:
    """Do a step of the upkeep; what it did."""
    done: dict[str, Any] = json.loads(await connection.fetchval(_MAINTAIN, step))
    return done


async def declare_kinds(
    connection: Connection, kinds: str, version: str, worker: str
) -> None:
    """Declare kinds' policy and payloads, JSON text; newest version wins."""
    await connection.fetchval(_DECLARE_KINDS, kinds, version, worker)


async def park(connection: Connection, queue: str, *, muted: bool) -> bool:
    """Go on duty for a queue; whether this session is now, or another is."""
    is_on_duty: bool = await connection.fetchval(_PARK, queue, muted)
    return is_on_duty


async def mute(connection: Connection, queue: str) -> None:
    """Have a queue's inserts not notify."""
    await connection.fetchval(_MUTE, queue)


async def unmute(connection: Connection, queue: str) -> None:
    """Have a queue's inserts notify."""
    await connection.fetchval(_UNMUTE, queue)


async def unpark(connection: Connection, queue: str, *, muted: bool) -> None:
    """Go off duty for a queue, and tell the others."""
    await connection.fetchval(_UNPARK, queue, muted)


async def pass_baton(connection: Connection, queue: str) -> None:
    """Tell who sleeps on a queue that nobody may be on duty."""
    await connection.fetchval(_BATON, queue)


async def open_writers(connection: Connection) -> frozenset[str]:
    """Return the transactions that may be about to commit jobs."""
    return frozenset(await connection.fetchval(_OPEN_WRITERS))


async def session_id(connection: Connection) -> tuple[int, datetime]:
    """Return what tells a session from all others of its server."""
    row = await connection.fetchrow(_SESSION_ID)
    assert row is not None  # noqa: S101, it is this very session
    return row[0], row[1]


async def end_session(connection: Connection, session: tuple[int, datetime]) -> None:
    """End another session, if it is still there, and wait for that for a second."""
    await connection.fetchval(_END_SESSION, *session)


async def get_queue_stats(
    connection: Connection, queue: str | None = None
) -> list[dict[str, Any]]:
    """Return the statistics, a dict a queue."""
    return [dict(row) for row in await connection.fetch(_GET_QUEUE_STATS, queue)]


async def get_job(connection: Connection, job_id: int) -> str:
    """Return one job as JSON text."""
    job: str = await connection.fetchval(_GET_JOB, job_id)
    return job


async def enqueue(
    connection: Connection,
    kind: str,
    payload: str,
    *,
    queue: str = "default",
    priority: int = 0,
    run_at: datetime | None = None,
    delay: timedelta | None = None,
    max_attempts: int | None = None,
    unique_key: str | None = None,
    on_conflict: str = "return",
    concurrency_key: str | None = None,
    depends_on: Sequence[int] = (),
    on_parent_failure: str | None = None,
    webhook: str | None = None,
) -> int:
    """Add a job, its payload as JSON text; its id, or that of the live one."""
    job_id: int = await connection.fetchval(
        _ENQUEUE,
        kind,
        payload,
        queue,
        priority,
        run_at,
        delay,
        max_attempts,
        unique_key,
        on_conflict,
        concurrency_key,
        depends_on,
        on_parent_failure,
        webhook,
    )
    return job_id


async def report_worker(
    connection: Connection,
    worker: str,
    *,
    host: str,
    pid: int,
    queues: Sequence[str],
    kinds: Sequence[str],
    version: str,
) -> None:
    """Say that a worker is there."""
    await connection.fetchval(_REPORT_WORKER, worker, host, pid, queues, kinds, version)


async def forget_worker(connection: Connection, worker: str) -> None:
    """Say that a worker has ended."""
    await connection.fetchval(_FORGET_WORKER, worker)


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
) -> list[dict[str, Any]]:
    """Return jobs, the newest first, before an id; payload: JSON text it contains."""
    rows = await connection.fetch(
        _LIST_JOBS,
        queue,
        kind,
        status,
        before,
        limit,
        concurrency_key,
        unique_key,
        worker,
        payload,
    )
    return [{**row, "progress": parsed(row["progress"])} for row in rows]


def parsed(text: str | None) -> Any:
    """Return the value of a JSON text; None for none."""
    return None if text is None else json.loads(text)


async def peek_jobs(
    connection: Connection, queue: str, limit: int
) -> list[dict[str, Any]]:
    """Return the due jobs of a queue in the order of a claim."""
    return [
        {**row, "payload": json.loads(row["payload"])}
        for row in await connection.fetch(_PEEK_JOBS, queue, limit)
    ]


async def next_run_at(connection: Connection, queue: str) -> datetime | None:
    """Return when the next pending job of a queue is due, or was."""
    run_at: datetime | None = await connection.fetchval(_NEXT_RUN_AT, queue)
    return run_at


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


async def retry_job(connection: Connection, job_id: int) -> None:
    """Make a failed or cancelled job pending again."""
    await connection.fetchval(_RETRY_JOB, job_id)


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
        {**row, "payload": json.loads(row["payload"])}
        for row in await connection.fetch(
            _RETRY_FAILED, queue, kind, fingerprint, limit, rate, patch, dry_run
        )
    ]


async def cancel_job(connection: Connection, job_id: int) -> str:
    """Cancel a job; what became of it."""
    outcome: str = await connection.fetchval(_CANCEL_JOB, job_id)
    return outcome


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
    """Return a queue's limits, and under keys those of single concurrency keys."""
    row = await connection.fetchrow(_GET_LIMITS, queue)
    names = ("max_running", "rate_limit", "rate_burst", "key_limit")
    limits: dict[str, Any] = dict.fromkeys(names) if row is None else dict(row)
    keys = await connection.fetch(_GET_KEY_LIMITS, queue)
    return {**limits, "keys": dict(map(tuple, keys))}


async def set_limits(
    connection: Connection, queue: str, changes: dict[str, Any]
) -> None:
    """Change some of a queue's limits; None: no such limit."""
    async with connection.transaction():
        limits = {**await get_limits(connection, queue), **changes}
        await connection.execute(
            _SET_LIMITS,
            queue,
            limits["max_running"],
            limits["rate_limit"],
            limits["rate_burst"],
            limits["key_limit"],
        )


async def set_key_limit(
    connection: Connection, queue: str, key: str, limit: int | None
) -> None:
    """Limit one concurrency key; None: as its queue says."""
    if limit is None:
        await connection.execute(_DROP_KEY_LIMIT, queue, key)
    else:
        await connection.execute(_SET_KEY_LIMIT, queue, key, limit)


async def installed_schema(connection: Connection) -> Schema | None:
    """Return which schema is installed; None where there is none."""
    import asyncpg  # noqa: PLC0415, a producer on another driver does without

    try:
        row = await connection.fetchrow(_SCHEMA_VERSION)
    except (asyncpg.UndefinedTableError, asyncpg.InvalidSchemaNameError):
        return None
    return Schema(*row) if row else None


async def run_installer(
    connection: Connection, script: str, *, patience: float
) -> None:
    """Run install.sql, which waits for its tables for so many seconds."""
    await connection.execute(_STANDARD_STRINGS)
    await connection.execute(_PATIENCE.format(ceil(patience * 1000)) + script)


async def has_roles(connection: Connection) -> bool:
    """Return whether the roles of roles.sql have rights in this database."""
    answer: bool = await connection.fetchval(_HAS_ROLES)
    return answer


async def is_read_only(connection: Connection) -> bool:
    """Return whether nothing can be written: a standby, or set so."""
    answer: bool = await connection.fetchval(_IS_READ_ONLY)
    return answer


async def session_count(
    connection: Connection, application_names: Sequence[str], *, busy: bool = False
) -> int:
    """Return how many sessions of these names the database has; only the busy ones?"""
    count: int = await connection.fetchval(_SESSION_COUNT, application_names, busy)
    return count

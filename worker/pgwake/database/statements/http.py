"""The SQL of the HTTP API: most answers are JSON texts, passed on as they are.

So no number of a payload is rounded on its way, and no answer is built on a loop that
has leases to renew. Times are in the session's zone, which begin() sets to UTC.
"""

import json
from collections.abc import Mapping
from datetime import timedelta
from time import monotonic
from typing import Any

from pgwake.database.statements import Connection
from pgwake.database.statements.stats import LIST_QUEUES, LIST_WINDOW

LIST_SECONDS = 0.15  # after which a page is answered that has no jobs yet

# The plans are made for the arguments: an argument that is null leaves out a condition,
# and a status all leaves but its own.
_BEGIN = """
begin {access};
set local timezone = 'UTC';
set local statement_timeout = {milliseconds};
set local plan_cache_mode = force_custom_plan;
set local jit = off
"""
_STATS = """
with stats as materialized (
  select s.*, s.queue collate "C" as name, q.paused_until,
    coalesce(q.paused_until > pgwake.now(), false) as is_paused
  from pgwake.get_queue_stats($1) as s
  left join pgwake.queues as q on q.name = s.queue collate "C"
), live as materialized (
  select w.queues
  from pgwake.workers as w
  where pgwake.is_live(w.seen_at) and ($1 is null or $1 = any (w.queues))
), recent as (
  select sum(r.queue_ms) / nullif(sum(r.completed), 0) as queue_ms,
    sum(r.execution_ms) / nullif(sum(r.completed), 0) as execution_ms
  from pgwake.count_rows as r
  where r.at > pgwake.now() - interval '5 minutes' and ($1 is null or r.queue = $1)
)
select json_build_object(
  'queue_size', coalesce(sum(s.pending_count + s.scheduled_count + s.waiting_count), 0),
  'active_tasks', coalesce(sum(s.running_count), 0),
  'workers', (select count(*) from live),
  'tasks_enqueued', coalesce(sum(s.enqueued_total), 0),
  'tasks_completed', coalesce(sum(s.completed_total), 0),
  'tasks_failed', coalesce(sum(s.failed_total), 0),
  'avg_queue_time_ms', (select r.queue_ms from recent as r),
  'avg_execution_time_ms', (select r.execution_ms from recent as r),
  'queues', coalesce(
    json_agg(json_build_object(
      'queue', s.queue,
      'queue_size', s.pending_count + s.scheduled_count + s.waiting_count,
      'active_tasks', s.running_count,
      'workers', (select count(*) from live as l where s.name = any (l.queues)),
      'tasks_enqueued', s.enqueued_total,
      'tasks_completed', s.completed_total,
      'tasks_failed', s.failed_total,
      'avg_queue_time_ms', s.avg_queue_time_ms,
      'avg_execution_time_ms', s.avg_execution_time_ms,
      'pending', s.pending_count,
      'scheduled', s.scheduled_count,
      'waiting', s.waiting_count,
      'failed', s.failed_count,
      'oldest_pending_seconds', extract(epoch from s.oldest_pending_age),
      'paused_until', case when s.is_paused then nullif(s.paused_until, 'infinity') end,
      'is_paused', s.is_paused,
      'is_estimate', s.is_estimate
    ) order by s.name),
    '[]')
)::text
from stats as s
"""
_ACTIVE_TASKS = """
with page as (
  select j.id, j.kind, j.queue, j.claimed_by as worker, j.created_at as enqueued_at,
    j.started_at, j.progress
  from pgwake.jobs_live as j
  where j.status = 'running' and ($1::text is null or j.queue = $1)
  order by j.started_at, j.id
  limit $2
)
select json_build_object(
  'count', (
    select coalesce(greatest(sum(r.running_rows), 0), 0)
    from pgwake.count_rows as r
    where $1::text is null or r.queue = $1
  ),
  'tasks', coalesce(
    (select json_agg(p order by p.started_at, p.id) from page as p), '[]')
)::text
"""
# Looks at so many ids at a time, so that a filter that nothing matches reads no more.
_LIST_JOBS = """
with newest as materialized (
  select j.id, j.id - $8::bigint as end_id
  from pgwake.jobs as j
  where ($3::text is null or j.status = $3) and ($6::bigint is null or j.id < $6)
  order by j.id desc
  limit 1
), found as materialized (
  select j.id, j.queue, j.kind, j.status, j.priority, j.run_at, j.attempt, j.progress,
    j.concurrency_key, j.claimed_by as worker, j.created_at, j.started_at, j.finished_at
  from pgwake.jobs as j
  where ($1::text is null or j.queue = $1) and ($2::text is null or j.kind = $2)
    and ($3::text is null or j.status = $3) and ($4::text is null or j.claimed_by = $4)
    and ($9::text is null
      or j.run_at > pgwake.now() and (j.attempt > 0) = ($9 = 'retrying'))
    and ($5::text is null or j.unique_key = $5)
    and ($10::text is null or j.concurrency_key = $10)
    and j.id <= (select n.id from newest as n)
    and j.id > (select n.end_id from newest as n)
  order by j.id desc
  limit $7::int + 1
), page as (
  select f.* from found as f order by f.id desc limit $7
)
select json_build_object(
  'jobs', coalesce((select json_agg(p order by p.id desc) from page as p), '[]'),
  'next', case
    when (select count(*) from found) > $7 then (select min(p.id) from page as p)
    else (
      select j.id + 1
      from pgwake.jobs as j
      where ($3::text is null or j.status = $3)
        and j.id <= (select n.end_id from newest as n)
      order by j.id desc
      limit 1
    )
  end::text
)::text
"""
_SHOW_JOB = """
select (j.job || jsonb_build_object(
  'worker', j.job -> 'claimed_by', 'explanation', pgwake.explain_job($1),
  'is_queue_paused', coalesce(q.paused_until > pgwake.now(), false)))::text
from pgwake.get_job($1) as j(job)
left join pgwake.queues as q on q.name = j.job ->> 'queue'
"""
_CANCEL_JOB = """
select json_build_object('id', $1::bigint, 'outcome', pgwake.cancel_job($1))::text
"""
_RETRY_JOB = "select pgwake.retry_from_step($1, $2)"
_RUN_NOW = """
select json_build_object('id', $1::bigint, 'outcome', pgwake.run_now($1))::text
"""
# What is merged is taken from the text that the client has sent, as in push.
_UPDATE_JOBS = """
select json_build_object('outcomes', coalesce(
  json_agg(json_build_object(
    'outcome', u.outcome, 'count', u.job_count, 'ids', u.ids) order by u.place),
  '[]'))::text
from (
  select $1::text::jsonb || coalesce(jsonb_object_agg(c.name, c.value), '{}')
  from jsonb_each($2::text::jsonb -> 'changes') as c(name, value)
  where c.name in ('payload', 'metadata')
) as s(changes)
cross join lateral pgwake.update_jobs(
  s.changes, $3, $4, $5, $6, $7, $8, $9, $10, $11
) with ordinality as u(outcome, job_count, ids, place)
"""
_STATUS = """
select json_build_object('id', j.id, 'status', j.status)::text
from pgwake.jobs_live as j where j.id = $1
"""
_CANCEL_JOBS = """
select (jsonb_build_object('cancelled', 0, 'cancel_requested', 0, 'missed', 0)
  || coalesce(jsonb_object_agg(c.outcome, c.job_count), '{}'))::text
from pgwake.cancel_jobs($1, $2, $3, $4, $5, $6, $7) as c
"""
_LIST_FAILED = """
select json_build_object('groups', coalesce(
  json_agg(json_build_object(
    'fingerprint', f.fingerprint, 'queue', f.queue, 'kind', f.kind, 'reason', f.reason,
    'message', f.message, 'count', f.job_count, 'first_failed_at', f.first_failed_at,
    'last_failed_at', f.last_failed_at, 'last_job_id', f.last_job_id,
    'is_queue_paused', coalesce(q.paused_until > pgwake.now(), false)
  ) order by f.place),
  '[]'))::text
from pgwake.list_failed($1, $2, null, $3) with ordinality as f(
  fingerprint, queue, kind, reason, message, job_count, first_failed_at, last_failed_at,
  last_job_id, place)
left join pgwake.queues as q on q.name = f.queue
"""
_RETRY_FAILED = """
select json_build_object(
  'retried', count(*) filter (where f.outcome = 'retried'),
  'skipped', count(*) filter (where f.outcome <> 'retried'))::text
from pgwake.retry_failed(
  $1, $2, $3, $4, $5, nullif($6::text::jsonb -> 'patch', 'null')) as f
"""
_PURGE_FAILED = """
select json_build_object(
  'purged', pgwake.purge('failed', $1, $2, $3, null, $4, $5))::text
"""
_LIST_QUEUES = """
select json_build_object('queues', coalesce(
  json_agg(to_jsonb(q) || jsonb_build_object(
    'paused_until', nullif(q.paused_until, 'infinity')::timestamptz) order by q.name),
  '[]'))::text
from ({}) as q
""".replace("{}", LIST_QUEUES)
_PAUSE_QUEUE = """
select json_build_object(
  'queue', $1::text, 'paused_until', nullif(p.until, 'infinity'))::text
from pgwake.pause_queue(
  $1, coalesce($2::text::timestamptz, pgwake.now() + $3::interval, 'infinity')
) as p(until)
"""
_RESUME_QUEUE = """
select json_build_object('queue', $1::text, 'was_paused', pgwake.resume_queue($1))::text
"""
_LIST_WORKERS = """
select json_build_object('workers', coalesce(
  json_agg(json_build_object(
    'name', w.name, 'host', w.host, 'pid', w.pid, 'version', w.version,
    'queues', w.queues, 'kinds', w.kinds, 'started_at', w.started_at,
    'seen_at', w.seen_at, 'running', w.running_count, 'slots', r.slots,
    'is_live', w.is_live
  ) order by w.name),
  '[]'))::text
from pgwake.list_workers() as w join pgwake.workers as r on r.name = w.name
"""

_LIST_KINDS = """
select json_build_object('kinds', coalesce(json_agg(k order by k.name), '[]'))::text
from (
  select l.name, l.declared, l.overrides, l.bounce_count, l.bounced_at,
    l.live_worker_count as workers, k.declared_schema as schema
  from pgwake.list_kinds() as l
  left join pgwake.kinds as k on k.name = l.name
) as k
"""
_LIST_SCHEDULES = """
select json_build_object('schedules', coalesce(json_agg(s order by s.name), '[]'))::text
from (
  select l.name, l.cron, extract(epoch from l.every)::float8 as every_seconds,
    l.timezone, l.kind, l.queue, l.payload, l.is_paused, l.next_at, l.last_at,
    l.last_job_id, l.fired_count, l.left_out_count, l.problem
  from pgwake.list_schedules() as l
) as s
"""
_ADD_SCHEDULE = """
select json_build_object('is_different', pgwake.schedule(
  s.name, s.cron, s.kind, coalesce(s.payload, '{}'), s.queue, s.timezone,
  make_interval(secs => s.every_seconds), s.priority, s.max_attempts, s.metadata,
  s.concurrency_key, s.may_overlap, s.misfire, s.misfire_limit, s.starts_at))::text
from jsonb_to_record($1::text::jsonb || $2::text::jsonb) as s(
  name text, cron text, kind text, payload jsonb, queue text, timezone text,
  every_seconds float8, priority int, max_attempts int, metadata jsonb,
  concurrency_key text, may_overlap boolean, misfire text, misfire_limit int,
  starts_at timestamptz)
"""
_EMIT_EVENT = """
select json_build_object(
  'is_first', pgwake.emit_event(e.event ->> 'name', e.event -> 'payload'))::text
from (select $1::text::jsonb) as e(event)
"""
_CHANGE_SCHEDULE = {
    "pause": "'was_paused', not pgwake.pause_schedule($1)",
    "resume": "'was_paused', pgwake.resume_schedule($1)",
    "remove": "'was_there', pgwake.unschedule($1)",
    "run": "'job_id', pgwake.run_schedule($1)",
}
_DIAGNOSE = """
select json_build_object('findings', coalesce(json_agg(json_build_object(
  'check', f.check_name, 'severity', f.severity, 'subject', f.subject,
  'problem', f.problem, 'fix', f.fix) order by f.place), '[]'))::text
from pgwake.diagnose() with ordinality as f(
  check_name, severity, subject, problem, fix, value, place)
"""


async def begin(connection: Connection, milliseconds: int, *, may_write: bool) -> None:
    """Begin a transaction in UTC, with a deadline for each statement."""
    access = "" if may_write else "read only"
    await connection.execute(_BEGIN.format(access=access, milliseconds=milliseconds))


async def commit(connection: Connection) -> None:
    """Commit the transaction."""
    await connection.execute("commit")


async def rollback(connection: Connection) -> None:
    """Roll the transaction back."""
    await connection.execute("rollback")


async def stats(connection: Connection, queue: str | None) -> str:
    """Return what stands in the queues, and what has gone through them."""
    return await _text(connection, _STATS, queue)


async def active_tasks(connection: Connection, queue: str | None, limit: int) -> str:
    """Return the running jobs, the longest-running first."""
    return await _text(connection, _ACTIVE_TASKS, queue, limit)


async def list_jobs(connection: Connection, given: Mapping[str, Any]) -> str:
    """Return a page of jobs, the newest first, after one; given: see ListJobs.

    It may be short, or empty, though more follow: after LIST_SECONDS of looking.
    """
    names = ("queue", "kind", "status", "worker", "unique_key", "after", "limit")
    end_at = monotonic() + LIST_SECONDS
    later = given["status"] if given["status"] in ("scheduled", "retrying") else None
    if later is not None:
        given = {**given, "status": "pending"}
    while True:
        arguments = [given[name] for name in names]
        arguments += [LIST_WINDOW, later, given["concurrency_key"]]
        text = await _text(connection, _LIST_JOBS, *arguments)
        page = json.loads(text) if text.startswith('{"jobs" : [],') else {"next": None}
        if page["next"] is None or monotonic() > end_at:
            return text
        given = {**given, "after": int(page["next"])}


async def show_job(connection: Connection, job_id: int) -> str:
    """Return a job, all columns, and its explanation."""
    return await _text(connection, _SHOW_JOB, job_id)


async def cancel_job(connection: Connection, job_id: int) -> str:
    """Cancel a job; what became of it."""
    return await _text(connection, _CANCEL_JOB, job_id)


async def retry_job(connection: Connection, job_id: int, keep_steps: int | None) -> str:
    """Make a failed or cancelled job pending again; its status."""
    await connection.execute(_RETRY_JOB, job_id, keep_steps)
    return await _text(connection, _STATUS, job_id)


async def run_now(connection: Connection, job_id: int) -> str:
    """Have a job that waits be due now; what became of it."""
    return await _text(connection, _RUN_NOW, job_id)


async def update_jobs(
    connection: Connection, given: Mapping[str, Any], changes: str, text: str
) -> str:
    """Change jobs that wait; how many and which, by outcome.

    Args:
        connection: Where, in a transaction.
        given: Which; see UpdateJobs.
        changes: What is to be different, without what is merged: a JSON object.
        text: The request, of which payload and metadata are merged.
    """
    names = (
        *("ids", "queue", "kind", "concurrency_key", "unique_key", "status"),
        *("after", "limit", "dry_run"),
    )
    arguments = [given[name] for name in names]
    return await _text(connection, _UPDATE_JOBS, changes, text, *arguments)


async def list_failed(
    connection: Connection, queue: str | None, kind: str | None, limit: int
) -> str:
    """Return the dead letters, in groups."""
    return await _text(connection, _LIST_FAILED, queue, kind, limit)


async def retry_failed(
    connection: Connection, given: Mapping[str, Any], text: str
) -> str:
    """Make dead letters pending again; how many.

    Args:
        connection: Where, in a transaction.
        given: Which; see RetryFailed.
        text: The request, of which the patch is merged.
    """
    names = ("queue", "kind", "fingerprint", "limit", "rate")
    arguments = [given[name] for name in names]
    return await _text(connection, _RETRY_FAILED, *arguments, text)


async def purge_failed(connection: Connection, given: Mapping[str, Any]) -> str:
    """Delete dead letters for good; how many; given: see PurgeFailed."""
    names = ("queue", "kind", "fingerprint", "limit", "dry_run")
    return await _text(connection, _PURGE_FAILED, *(given[name] for name in names))


async def cancel_jobs(connection: Connection, given: Mapping[str, Any]) -> str:
    """Cancel jobs that have not ended; how many by outcome; given: see CancelJobs."""
    names = ("queue", "kind", "concurrency_key", "unique_key", "status")
    arguments = [given[name] for name in (*names, "limit", "dry_run")]
    return await _text(connection, _CANCEL_JOBS, *arguments)


async def pause_queue(
    connection: Connection,
    queue: str,
    until: str | None,
    duration: timedelta | None,
) -> str:
    """Pause a queue; until when."""
    return await _text(connection, _PAUSE_QUEUE, queue, until, duration)


async def resume_queue(connection: Connection, queue: str) -> str:
    """End a queue's pause; whether it was paused."""
    return await _text(connection, _RESUME_QUEUE, queue)


async def list_workers(connection: Connection) -> str:
    """Return the workers that report themselves."""
    return await _text(connection, _LIST_WORKERS)


async def list_queues(connection: Connection) -> str:
    """Return the queues, with their policy."""
    return await _text(connection, _LIST_QUEUES)


async def list_kinds(connection: Connection) -> str:
    """Return the kinds that are known."""
    return await _text(connection, _LIST_KINDS)


async def list_schedules(connection: Connection) -> str:
    """Return the schedules."""
    return await _text(connection, _LIST_SCHEDULES)


async def add_schedule(connection: Connection, text: str, given: str) -> str:
    """Add or replace a schedule; whether it is different.

    Args:
        connection: Where, in a transaction.
        text: The request, of which payload and metadata are taken.
        given: The rest, checked: a JSON object.
    """
    return await _text(connection, _ADD_SCHEDULE, text, given)


async def emit_event(connection: Connection, text: str) -> str:
    """Emit an event, by the text of an Event; whether it is the first."""
    return await _text(connection, _EMIT_EVENT, text)


async def change_schedule(connection: Connection, change: str, name: str) -> str:
    """Pause, resume, remove or run a schedule; what came of it."""
    sql = f"select json_build_object({_CHANGE_SCHEDULE[change]})::text"
    return await _text(connection, sql, name)


async def diagnose(connection: Connection) -> str:
    """Return what is wrong with the installation."""
    return await _text(connection, _DIAGNOSE)


async def _text(connection: Connection, sql: str, *arguments: Any) -> str:
    return str(await connection.fetchval(sql, *arguments))

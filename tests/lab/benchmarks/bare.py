"""The worker's claim and completion beside bare prepared statements on the same tables.

The bare ones do the least: they take the due jobs of a queue in order under a lease,
move those whose lease fits to the history, and write the rows that are counted. They
have no policy, limits, keys, cursor, watchers or checks of arguments. What is more in
ours is what the bodies of the functions cost.
"""

from collections.abc import Awaitable, Sequence
from pathlib import Path
from statistics import median
from typing import TypeVar
from uuid import UUID

import asyncpg

from pgwake.cli.bench.measure import Figures
from pgwake.database.connection import Connection
from pgwake.database.statements.claim import claim_rows
from pgwake.database.statements.finish import complete_jobs

from .contenders import PGWAKE
from .measure import Bench

BARE_CLAIM = """
with due as materialized (
  select j.ctid
  from pgwake.jobs_live as j
  where j.queue = $1 and j.status = 'pending' and j.run_at <= now()
  order by least(j.crash_count, 2) * 201 - j.priority, j.run_at, j.id
  limit $2
  for update skip locked
),
claimed as (
  update pgwake.jobs_live as j
  set status = 'running', attempt = j.attempt + 1, lease_id = $3, claimed_by = $4,
    lease_expires_at = now() + interval '5 minutes', started_at = now()
  where j.ctid = any (array(select d.ctid from due as d))
  returning j.*
),
counted as (
  insert into pgwake.counts (queue, at, running_rows)
  select $1, now(), count(*) from claimed
)
select c.id, c.lease_id, c.queue, c.kind, c.payload::jsonb, c.attempt, c.max_attempts,
  c.lease_expires_at, c.created_at, c.metadata::jsonb
from claimed as c
order by least(c.crash_count, 2) * 201 - c.priority, c.run_at, c.id
"""
BARE_COMPLETION = """
with done as (
  delete from pgwake.jobs_live as j
  using unnest($1::bigint[], $2::uuid[]) as u(id, lease_id)
  where j.id = u.id and j.lease_id = u.lease_id
  returning j.*
),
kept as (
  insert into pgwake.jobs_finished
    (id, queue, kind, status, priority, run_at, attempt, max_attempts, payload,
     metadata, lease_id, claimed_by, crash_count, bounce_count, created_at, started_at,
     finished_at, finished_slot)
  select d.id, d.queue, d.kind, 'completed', d.priority, d.run_at, d.attempt,
    d.max_attempts, d.payload, d.metadata, d.lease_id, d.claimed_by, d.crash_count,
    d.bounce_count, d.created_at, d.started_at, now(), 0
  from done as d
  returning queue, run_at, started_at
),
counted as (
  insert into pgwake.counts
    (queue, at, completed, live_rows, running_rows, completed_rows, finished_slot,
     queue_ms, execution_ms)
  select k.queue, now(), count(*), -count(*), -count(*), count(*), 0,
    1000 * extract(epoch from sum(k.started_at - k.run_at)),
    1000 * extract(epoch from sum(now() - k.started_at))
  from kept as k
  group by k.queue
)
select count(*) from kept
"""
T = TypeVar("T")

# What the functions pin for themselves.
PINNED = {
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "jit": "off",
}
QUEUE, WORKER = "default", "parts:1"
LEASE_ID = "00000000-0000-4000-8000-000000000001"
INSERT = "insert into pgwake.jobs (kind) select 'noop' from generate_series(1, $1::int)"
WAL = "select (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint"


async def beside_bare(bench: Bench, batch: int, rounds: int) -> Figures:
    """Measure both in turn: CPU of their sessions and WAL, medians, a job each.

    CPU is there only if the server runs on this machine.
    """
    async with PGWAKE.database(bench) as (url, ours):
        bare = await asyncpg.connect(url, server_settings=PINNED)
        try:
            return await _measure(ours, bare, batch, rounds)
        finally:
            await bare.close()


async def _measure(
    ours: Connection, bare: Connection, batch: int, rounds: int
) -> Figures:
    used: dict[str, list[float]] = {}
    pids = {s: await s.fetchval("select pg_backend_pid()") for s in (ours, bare)}

    async def measured(name: str, session: Connection, work: Awaitable[T]) -> T:
        wal, cpu = await session.fetchval(WAL), cpu_us(pids[session])
        answer = await work
        after = cpu_us(pids[session])
        if cpu is not None and after is not None:
            used.setdefault(f"{name}_us", []).append((after - cpu) / batch)
        wal = await session.fetchval(WAL) - wal
        used.setdefault(f"{name}_wal", []).append(wal / batch)
        return answer

    for session in (ours, bare):
        await session.execute("set synchronous_commit = off")
    cursor = None
    for number in range(rounds + rounds // 10 + 6):
        if number == rounds // 10 + 6:  # the first ones compile
            used.clear()
        await measured("insert", ours, ours.execute(INSERT, batch))
        claim = await measured(
            "claim", ours, claim_rows(ours, QUEUE, batch, WORKER, None, cursor)
        )
        cursor = claim.cursor
        ids, leases = _leases(claim.jobs)
        assert len(ids) == batch
        ends = await measured("complete", ours, complete_jobs(ours, ids, leases, None))
        assert ends.count("completed") == batch

        await ours.execute(INSERT, batch)
        rows = await measured(
            "bare_claim",
            bare,
            bare.fetch(BARE_CLAIM, QUEUE, batch, LEASE_ID, WORKER),
        )
        ids, leases = _leases(rows)
        done = await measured(
            "bare_complete", bare, bare.fetchval(BARE_COMPLETION, ids, leases)
        )
        assert done == batch
    figures = {name: median(values) for name, values in used.items()}
    for unit, name in (("us", "ratio"), ("wal", "wal_ratio")):
        if f"claim_{unit}" in figures:
            figures[name] = (figures[f"claim_{unit}"] + figures[f"complete_{unit}"]) / (
                figures[f"bare_claim_{unit}"] + figures[f"bare_complete_{unit}"]
            )
    return figures


def _leases(rows: Sequence[asyncpg.Record]) -> tuple[list[int], list[UUID]]:
    return [row[0] for row in rows], [row[1] for row in rows]


def cpu_us(pid: int) -> float | None:
    """CPU of a session's process so far; None: it is not on this machine."""
    try:
        stat = Path(f"/proc/{pid}/comm").read_text()
        spent = Path(f"/proc/{pid}/schedstat").read_text()
    except OSError:
        return None
    return int(spent.split()[0]) / 1000 if "postgres" in stat else None

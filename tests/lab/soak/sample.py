"""Measurements of one moment: by one statement, and of processes from /proc."""

import json
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import asyncpg

from lab.soak.measures import Of
from pgwake.cli.bench.measure import stat_fields
from pgwake.database.connection import Connection

# Counts of ended jobs are those of the statistics, which cost the same at any history.
_ASK = """
with relations as (
  select c.relname, c.oid, pg_total_relation_size(c.oid) as bytes
  from pg_class as c
  where c.relnamespace = 'pgwake'::regnamespace and c.relkind = 'r'
),
sessions as (
  select a.state, a.xact_start, clock_timestamp() - a.state_change as since
  from pg_stat_activity as a
  where a.datname = current_database() and a.application_name like 'pgwake:%'
),
stats as (
  select sum(s.completed_total + s.failed_total)::float8 as ended,
    sum(s.completed_count + s.cancelled_count + s.failed_count)::float8 as kept,
    sum(s.completed_count) filter (where q.retention_completed is not null) as forgetful
  from pgwake.get_queue_stats() as s left join pgwake.queues as q on q.name = s.queue
)
select
  (select count(*) from sessions) as sessions,
  (select count(*) from sessions as s
   where s.state like 'idle in transaction%' and s.since > '1 second')
    as in_transaction,
  (select count(distinct l.pid) from pg_locks as l
   where l.locktype = 'advisory' and l.objsubid = 1 and l.mode = 'ExclusiveLock'
     and l.database = (select d.oid from pg_database as d
                       where d.datname = current_database())) as wake_locks,
  (select count(*) from pg_locks as l where l.pid <> pg_backend_pid()) as locks,
  pg_notification_queue_usage() * 100 as notifications,
  (select count(*) from pgwake.jobs_live) as live_rows,
  pg_table_size('pgwake.jobs_live') as live_heap,
  pg_indexes_size('pgwake.jobs_live') as live_indexes,
  (select s.n_dead_tup from pg_stat_user_tables as s
   where s.relid = 'pgwake.jobs_live'::regclass) as live_dead,
  (select count(*) from pgwake.counts) as counts,
  (select sum(r.bytes) from relations as r
   where r.relname !~ '^jobs_(live|failed|finished)') as tables,
  stats.forgetful as forgetful,
  (select sum(r.bytes) from relations as r where r.relname ~ '^jobs_(failed|finished)')
    / nullif(stats.kept, 0) as history,
  stats.ended,
  (pg_current_wal_lsn() - '0/0'::pg_lsn)::float8 as wal_bytes
from stats
"""
# For superusers, or pg_monitor.
_ASK_MONITOR = """
select (select sum(w.size) from pg_ls_waldir() as w) as wal_files,
  pg_size_bytes(current_setting('max_wal_size')) as wal_files_ceiling,
  (select sum(m.allocated_size) from pg_shmem_allocations as m)
    as server_shared_ceiling
"""
_BACKENDS = """
select a.pid, a.application_name like 'pgwake:%' as is_worker from pg_stat_activity as a
"""
# A process that has just ended or, elsewhere, is not to be seen.
_UNSEEN = (OSError, ValueError, IndexError, KeyError)


class Process(NamedTuple):
    """A process, told from a later one with the same number by when it began."""

    pid: int
    began: int


@dataclass(frozen=True, slots=True)
class Sample:
    """What there is at one moment.

    Attributes:
        at: Seconds since the run began.
        run: By line, of the run as a whole.
        processes: By sort of process, each one's by line.
    """

    at: float
    run: dict[str, float]
    processes: dict[Of, dict[Process, dict[str, float]]]


class Sampler:
    """Asks the server and the machine.

    Args:
        looks: The folder in which the workers note what only they can see.
    """

    def __init__(self, looks: Path) -> None:
        self._looks = looks
        self._last: tuple[float, float] | None = None  # WAL bytes, ended jobs

    async def sample(
        self,
        connection: Connection,
        at: float,
        *,
        supervisors: Iterable[int],
        workers: Iterable[int],
    ) -> Sample:
        """Measure all; lines that can't be had here are left out.

        Raises:
            asyncpg.PostgresError, OSError: The server does not answer.
        """
        run = await _ask(connection, _ASK)
        with suppress(asyncpg.InsufficientPrivilegeError):
            run |= await _ask(connection, _ASK_MONITOR)
        wal, ended = run.pop("wal_bytes"), run.pop("ended")
        if self._last is not None and ended > self._last[1]:
            run["wal"] = (wal - self._last[0]) / (ended - self._last[1])
        self._last = wal, ended
        sessions = {}
        memory, shared = 0.0, 0.0
        for pid, is_worker in await connection.fetch(_BACKENDS):
            with suppress(*_UNSEEN):
                status = _server_status(pid)
                memory += status["RssAnon"]
                shared = max(shared, status["RssShmem"])
                if is_worker:
                    sessions[_process(pid)] = {"session_memory": status["RssAnon"]}
        if memory:
            run |= {"server_memory": memory, "server_shared": shared}
        return Sample(
            at,
            run,
            {
                "supervisor": _each(supervisors, self._supervisor),
                "worker": _each(workers, self._worker),
                "session": sessions,
            },
        )

    def _supervisor(self, pid: int) -> dict[str, float]:
        return {
            "supervisor_rss": _status(pid)["VmRSS"],
            "supervisor_files": _files(pid),
        }

    def _worker(self, pid: int) -> dict[str, float]:
        status = _status(pid)
        look = json.loads((self._looks / str(pid)).read_text())
        return {
            "worker_rss": status["VmRSS"],
            "worker_threads": status["Threads"],
            "worker_files": _files(pid),
            "worker_blocks": look["blocks"],
            "worker_tasks": look["tasks"],
        }


async def _ask(connection: Connection, query: str) -> dict[str, float]:
    row = await connection.fetchrow(query)
    assert row is not None
    return {name: float(value) for name, value in row.items() if value is not None}


def _each(
    pids: Iterable[int], measure: Callable[[int], dict[str, float]]
) -> dict[Process, dict[str, float]]:
    measured = {}
    for pid in pids:
        with suppress(*_UNSEEN):
            measured[_process(pid)] = measure(pid)
    return measured


def _process(pid: int) -> Process:
    """Of the fields of /proc/PID/stat behind the name, the 20th is when it began."""
    return Process(pid, int(stat_fields(pid)[19]))


def _server_status(pid: int) -> dict[str, float]:
    """The same of a process of the server's, which may be on another machine."""
    if "postgres" not in Path(f"/proc/{pid}/comm").read_text():
        raise ProcessLookupError(pid)
    return _status(pid)


def _files(pid: int) -> int:
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())


def _status(pid: int) -> dict[str, float]:
    """What /proc/PID/status says; sizes in bytes."""
    found = {}
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        name, _, value = line.partition(":")
        number, _, unit = value.strip().partition(" ")
        if number.isdecimal():
            found[name] = float(number) * (1024 if unit == "kB" else 1)
    return found

"""One run of the demo as the database sees it: what it inserts, and what it asks.

All of it is plain SQL, as any producer or operator would write it: the one exception to
the rule that SQL text stands in pgwake.queue.
"""

import asyncio
import hashlib
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

import asyncpg

from pgwake.connection import Connection

PING_PAUSE_SECONDS = 0.02  # for the worker to fall asleep again

_INSERT_PING = """
insert into pgwake.jobs (queue, kind, payload, metadata)
values ('demo', 'demo_ping', jsonb_build_object('sent_at', $1::float8),
        jsonb_build_object('demo_run', $2::text))
returning id
"""
_INSERT_SPECIAL_JOBS = """
select
  coalesce(j.status, 'missing') as status,
  coalesce(j.attempt, 0) as attempt,
  coalesce(j.crash_count, 0) as crash_count,
  count(*) filter (where e.reason = 'failed') as errors,
  coalesce(extract(epoch from j.started_at - j.run_at) * 1000, -1)::float8 as late_ms,
  coalesce(extract(epoch from j.started_at - max(e.at)) * 1000, -1)::float8 as again_ms
from unnest($3::text[]) with ordinality as k(kind, place)
left join pgwake.jobs as j
  on j.kind = k.kind and j.id >= $1 and j.metadata ->> 'demo_run' = $2
left join jsonb_to_recordset(j.errors) as e(reason text, at timestamptz) on true
group by k.place, j.status, j.attempt, j.crash_count, j.started_at, j.run_at
order by k.place
"""
_SPECIAL_KINDS = (
    "demo_flaky",
    "demo_doomed",
    "demo_killer",
    "demo_delayed",
    "demo_cancelled",
)


@dataclass(frozen=True, slots=True)
class Counts:
    """How the run's jobs stand; ended_lately is of the last second."""

    pending: int
    running: int
    completed: int
    failed: int
    cancelled: int
    ended_lately: int

    @property
    def ended(self) -> int:
        """How many are done with, one way or another."""
        return self.completed + self.failed + self.cancelled

    @property
    def total(self) -> int:
        """How many there are."""
        return self.pending + self.running + self.ended


@dataclass(frozen=True, slots=True)
class Files:
    """What became of the jobs that read files, and what they found."""

    jobs: int
    paths: int
    completed: int
    equal: int
    given_back: int
    lines: int
    functions: int
    unparsed: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that the demo promises, and what the database says of it."""

    name: str
    holds: bool
    finding: str


class DemoRun:
    """The jobs of one run, told from all others by their metadata.

    Args:
        connection: A session of the run's own.
        digests: The sha256 of each file to enqueue, by path.
    """

    def __init__(self, connection: Connection, digests: Mapping[str, str]) -> None:
        self._connection = connection
        self._digests = digests
        self._run = secrets.token_hex(8)
        self._first_id = 0

    async def ping(self) -> None:
        """Insert a job into the idle queue, and wait until it is completed."""
        job_id: int = await self._connection.fetchval(
            _INSERT_PING, monotonic(), self._run
        )
        self._first_id = self._first_id or job_id
        while not await self._connection.fetchval(_IS_COMPLETED, job_id):
            await asyncio.sleep(PING_PAUSE_SECONDS)
        await asyncio.sleep(PING_PAUSE_SECONDS)

    async def wake_up_ms(self) -> float:
        """Ask for the pings' median, without the first, which waited for the start."""
        median: float = await self._connection.fetchval(
            _WAKE_UP_MS, self._first_id, self._run
        )
        return median

    async def enqueue(self) -> None:
        """Insert a job for each file and the special ones; cancel the one to cancel."""
        async with self._connection.transaction():
            await self._connection.execute(_INSERT_SPECIAL_JOBS, self._run)
            await self._connection.execute(_INSERT_FILES, list(self._digests), self._run)
        await self._cancel("demo_cancelled")

    async def cancel_rest(self) -> int:
        """Cancel what has not run; how many."""
        return await self._cancel(None)

    async def _cancel(self, kind: str | None) -> int:
        count: int = await self._connection.fetchval(
            _CANCEL, self._first_id, self._run, kind
        )
        return count

    async def counts(self) -> Counts:
        """Count the run's jobs."""
        row = await self._connection.fetchrow(_COUNTS, self._first_id, self._run)
        assert row is not None  # noqa: S101, an aggregate has one row
        return Counts(*row)

    async def files(self) -> Files:
        """Sum up the jobs that read files."""
        row = await self._connection.fetchrow(
            _FILES,
            self._first_id,
            self._run,
            list(self._digests),
            list(self._digests.values()),
        )
        assert row is not None  # noqa: S101, an aggregate has one row
        return Files(*row)

    async def checks(self) -> list[Check]:
        """Ask the database whether everything came as promised."""
        files = await self.files()
        flaky, doomed, killer, delayed, cancelled = await self._connection.fetch(
            _SPECIAL_JOBS, self._first_id, self._run, _SPECIAL_KINDS
        )
        expected = len(self._digests)
        return [
            Check(
                "files",
                files.jobs == files.paths == files.completed == expected,
                f"{files.jobs:,} jobs for {files.paths:,} of {expected:,} files, "
                f"{files.completed:,} completed, each once",
            ),
            Check(
                "results",
                files.equal == expected,
                f"{files.equal:,} have the sha256 that the demo computed itself",
            ),
            Check(
                "flaky",
                (flaky["status"], flaky["attempt"]) == ("completed", 3),
                f"{flaky['status']} at attempt {flaky['attempt']}, after "
                f"{flaky['errors']} that failed",
            ),
            Check(
                "doomed",
                (doomed["status"], doomed["attempt"], doomed["errors"])
                == ("failed", 3, 3),
                f"{doomed['status']} at attempt {doomed['attempt']}, a dead letter with "
                f"its {doomed['errors']} errors",
            ),
            Check(
                "killer",
                (killer["status"], killer["crash_count"]) == ("completed", 1),
                f"killed its worker process; it and {files.given_back} files were given "
                f"back, it ran again {killer['again_ms']:.0f} ms later: "
                f"{killer['status']}",
            ),
            Check(
                "delayed",
                delayed["status"] == "completed" and delayed["late_ms"] >= 0,
                f"due 3 s after its insert, started {delayed['late_ms']:.1f} ms later: "
                f"{delayed['status']}",
            ),
            Check(
                "cancelled",
                (cancelled["status"], cancelled["attempt"]) == ("cancelled", 0),
                f"{cancelled['status']} at attempt {cancelled['attempt']}: never ran",
            ),
        ]

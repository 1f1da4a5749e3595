"""One run of the demo, as the database sees it: what it inserts, and what it asks.

Plain SQL, as a producer or an operator writes it: the one exception to the rule that
SQL text stands in pgwake.queue.
"""

import hashlib
import platform
import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic

from pgwake.cli.demo.jobs import STDLIB
from pgwake.database.connection import Connection

_INSERT_PING = """
insert into pgwake.jobs (queue, kind, payload, metadata)
values ('demo', 'demo_ping', jsonb_build_object('sent_at', $1::float8),
        jsonb_build_object('demo_run', $2::text))
returning id
"""
_INSERT_FILES = """
insert into pgwake.jobs (queue, kind, payload, metadata)
select 'demo', 'demo_file', jsonb_build_object('path', f.path),
       jsonb_build_object('demo_run', $2::text)
from unnest($1::text[]) as f(path)
"""
_SPECIAL_KINDS = (
    "demo_flaky",
    "demo_doomed",
    "demo_killer",
    "demo_delayed",
    "demo_cancelled",
)
_INSERT_SPECIAL = """
insert into pgwake.jobs (queue, kind, max_attempts, priority, run_at, metadata)
select 'demo', s.kind, s.max_attempts, 10, now() + s.delay,
       jsonb_build_object('demo_run', $1::text)
from (values ('demo_flaky',     null, interval '0 seconds'),
             ('demo_doomed',       3, interval '0 seconds'),
             ('demo_killer',    null, interval '1 second'),
             ('demo_delayed',   null, interval '3 seconds'),
             ('demo_cancelled', null, interval '1 hour')
     ) as s(kind, max_attempts, delay)
"""
_CANCEL = """
select count(pgwake.cancel_job(j.id))
from pgwake.jobs_live as j
where j.id >= $1 and j.metadata ->> 'demo_run' = $2
  and ($3::text is null or j.kind = $3)
"""
_IS_COMPLETED = """
select exists (select from pgwake.jobs as j where j.id = $1 and j.status = 'completed')
"""
_WAKE_UP_MS = """
select percentile_cont(0.5) within group (order by (j.result ->> 'ms')::float8)
from pgwake.jobs as j
where j.id > $1 and j.metadata ->> 'demo_run' = $2 and j.kind = 'demo_ping'
"""
_COUNTS = """
select
  count(*) filter (where j.status = 'pending') as pending,
  count(*) filter (where j.status = 'running') as running,
  count(*) filter (where j.status = 'completed') as completed,
  count(*) filter (where j.status = 'failed') as failed,
  count(*) filter (where j.status = 'cancelled') as cancelled,
  count(*) filter (where j.finished_at > now() - interval '1 second') as ended_lately
from pgwake.jobs as j
where j.id >= $1 and j.metadata ->> 'demo_run' = $2 and j.kind <> 'demo_ping'
"""
_FILES = """
select
  count(*) as jobs,
  count(distinct j.payload ->> 'path') as paths,
  count(*) filter (where j.status = 'completed') as completed,
  count(*) filter (where j.result ->> 'sha256' = f.sha256) as equal,
  count(*) filter (where j.crash_count > 0) as given_back,
  coalesce(sum((j.result ->> 'lines')::int), 0) as lines,
  coalesce(sum((j.result ->> 'functions')::int), 0) as functions,
  count(*) filter (where j.result ? 'parse_error') as unparsed,
  coalesce(extract(epoch from max(j.finished_at) - min(j.created_at)), 0)::float8
from pgwake.jobs as j
left join unnest($3::text[], $4::text[]) as f(path, sha256)
  on f.path = j.payload ->> 'path'
where j.id >= $1 and j.metadata ->> 'demo_run' = $2 and j.kind = 'demo_file'
"""
_SPECIAL = """
select
  coalesce(j.status, 'missing') as status,
  coalesce(j.attempt, 0) as attempt,
  coalesce(j.crash_count, 0) as crash_count,
  count(*) filter (where e.reason = 'failed') as errors,
  extract(epoch from j.started_at - j.run_at)::float8 * 1000 as late_ms,
  extract(epoch from j.started_at - max(e.at))::float8 * 1000 as again_ms
from unnest($3::text[]) with ordinality as k(kind, place)
left join pgwake.jobs as j
  on j.kind = k.kind and j.id >= $1 and j.metadata ->> 'demo_run' = $2
left join jsonb_to_recordset(j.errors) as e(reason text, at timestamptz) on true
group by k.place, j.status, j.attempt, j.crash_count, j.started_at, j.run_at
order by k.place
"""


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


def stdlib_digests() -> dict[str, str]:
    """Return the sha256 of each .py file of the running Python's library, by path."""
    digests = {}
    for path in sorted(STDLIB.rglob("*.py")):
        if not {"site-packages", "dist-packages"}.intersection(path.parts):
            with suppress(OSError, UnicodeError):  # dangling links, undecodable names
                name = path.relative_to(STDLIB).as_posix()
                name.encode()
                digests[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return digests


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

    @property
    def description(self) -> str:
        """What there is to do."""
        version = ".".join(platform.python_version_tuple()[:2])
        return (
            f"{len(self._digests):,} files of Python {version}'s library, "
            f"{len(_SPECIAL_KINDS)} that fail, crash or wait"
        )

    async def ping(self) -> int:
        """Insert a job that measures its own wake-up; its id."""
        job_id: int = await self._connection.fetchval(
            _INSERT_PING, monotonic(), self._run
        )
        self._first_id = self._first_id or job_id
        return job_id

    async def is_completed(self, job_id: int) -> bool:
        """Tell whether a job is completed."""
        found: bool = await self._connection.fetchval(_IS_COMPLETED, job_id)
        return found

    async def wake_up_ms(self) -> float:
        """Ask for the pings' median, without the first, which waited for the start."""
        median: float = await self._connection.fetchval(
            _WAKE_UP_MS, self._first_id, self._run
        )
        return median

    async def enqueue(self) -> None:
        """Insert a job for each file and the special ones; cancel the one to cancel."""
        paths = list(self._digests)
        async with self._connection.transaction():
            await self._connection.execute(_INSERT_SPECIAL, self._run)
            await self._connection.execute(_INSERT_FILES, paths, self._run)
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
        paths, digests = list(self._digests), list(self._digests.values())
        row = await self._connection.fetchrow(
            _FILES, self._first_id, self._run, paths, digests
        )
        assert row is not None  # noqa: S101, an aggregate has one row
        return Files(*row)

    async def checks(self) -> list[Check]:
        """Ask the database whether everything came as promised."""
        files, expected = await self.files(), len(self._digests)
        flaky, doomed, killer, delayed, cancelled = await self._connection.fetch(
            _SPECIAL, self._first_id, self._run, _SPECIAL_KINDS
        )
        return [
            Check(
                "files",
                files.jobs == files.paths == files.completed == expected > 0,
                f"{files.completed:,} of {expected:,} completed, in {files.jobs:,} "
                f"jobs, {files.given_back} of them given back",
            ),
            Check(
                "results",
                files.equal == expected,
                f"{files.equal:,} hold the sha256 that the demo has computed itself",
            ),
            Check(
                "flaky",
                (flaky["status"], flaky["attempt"]) == ("completed", 3),
                "{status} at attempt {attempt}, {errors} had failed".format(**flaky),
            ),
            Check(
                "doomed",
                (doomed["status"], doomed["attempt"], doomed["errors"])
                == ("failed", 3, 3),
                "{status} at attempt {attempt}: a dead letter with its {errors} "
                "errors".format(**doomed),
            ),
            Check(
                "killer",
                (killer["status"], killer["crash_count"]) == ("completed", 1),
                "killed its process; given back, begun again in "
                f"{_ms(killer['again_ms'])}: {killer['status']}",
            ),
            Check(
                "delayed",
                delayed["status"] == "completed" and delayed["late_ms"] >= 0,
                f"due after 3 s, started {_ms(delayed['late_ms'])} later: "
                f"{delayed['status']}",
            ),
            Check(
                "cancelled",
                (cancelled["status"], cancelled["attempt"]) == ("cancelled", 0),
                "{status} before it was due, at attempt {attempt}".format(**cancelled),
            ),
        ]


def _ms(value: float | None) -> str:
    return "- ms" if value is None else f"{value:.1f} ms"

"""What is measured: pgwake, and hand-written loops as the line to stay near.

Both keep their jobs in a table, are started as a process of their own, and note in a
file how late each job's handler began. Each can be held, so that a backlog is there
before its worker, already started and connected, is let at it.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from pgwake.cli.bench.worker import MeasuredWorker
from pgwake.database.connection import Connection
from pgwake.database.install import install
from pgwake.settings import Settings

from . import reference
from .measure import until


@dataclass(frozen=True, slots=True)
class Contender:
    """A queue.

    Attributes:
        name: What the tables call it.
        jobs: Its table of jobs that are not done, as a FROM clause.
        ended: Where its done jobs are, with started_at and finished_at.
        insert: Insert one job; $1 is its payload.
        fill: Insert $1 jobs with the payload $2.
        hold: Keep its workers from claiming.
        release: Let them.
        command: Its worker, beside the interpreter.
        schema: What makes its table; None: pgwake is installed.
    """

    name: str
    jobs: str
    ended: str
    insert: str
    fill: str
    hold: str
    release: str
    command: tuple[str, ...]
    schema: str | None = None

    async def install(self, url: str, connection: Connection) -> None:
        """Make its table."""
        if self.schema is None:
            await install(url)
        else:
            await connection.execute(self.schema)

    async def wait_until_done(self, connection: Connection) -> None:
        """Wait until no job is left, without a look through all that is dead."""
        last = await connection.fetchval(f"select max(id) from {self.jobs}")
        here = f"select not exists (select from {self.jobs}"
        is_last_done = await connection.prepare(f"{here} and id = $1)")
        await until(lambda: is_last_done.fetchval(last))
        await until(lambda: connection.fetchval(f"{here})"))

    @asynccontextmanager
    async def worker(
        self, url: str, *arguments: str, processes: int = 1
    ) -> AsyncIterator[MeasuredWorker]:
        """Run a worker that has started and listens."""
        if self.schema is None:
            arguments = (*arguments, "--processes", str(processes))
        settings = Settings.load(database_url=url, listen_url=url)
        with MeasuredWorker(settings, [*self.command, *arguments]) as worker:
            await worker.started(processes)
            yield worker


PGWAKE = Contender(
    name="pgwake",
    jobs="pgwake.jobs_live where status in ('waiting', 'pending', 'running')",
    ended="pgwake.jobs_finished where status = 'completed'",
    insert="insert into pgwake.jobs (kind, payload) values ('latency', $1)",
    fill="insert into pgwake.jobs (kind, payload) "
    "select 'noop', $2::jsonb from generate_series(1, $1::int)",
    hold="insert into pgwake.queues (name, paused_until) "
    "values ('default', 'infinity')",
    release="delete from pgwake.queues",
    command=(
        *("-m", "pgwake", "run", "--import", "tests.lab.benchmarks.handlers"),
        *("--http-port", "0", "--log-format", "json"),
    ),
)


def _reference(name: str, *command: str) -> Contender:
    return Contender(
        name=name,
        jobs="plain_jobs where state <> 'done'",
        ended="plain_jobs where state = 'done'",
        insert="insert into plain_jobs (kind, payload) values ('latency', $1)",
        fill="insert into plain_jobs (kind, payload) "
        "select 'noop', $2::jsonb from generate_series(1, $1::int)",
        hold="select pg_advisory_lock(1)",
        release="select pg_advisory_unlock(1)",
        command=("-m", "tests.lab.benchmarks.reference", *command),
        schema=reference.SCHEMA,
    )


REFERENCE = _reference("hand-written loop")
DELETING_REFERENCE = _reference("hand-written loop that deletes", "--delete")

"""What is measured: pgwake, and hand-written loops as the line to stay near.

Both keep their jobs in a table, are started as a process of their own, and note in a
file how late each job's handler began. Each can be held, so that a backlog is there
before its worker, already started and connected, is let at it.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from pgwake.cli.bench.measure import Figures, measured
from pgwake.cli.bench.worker import COMMAND, LATENCY, NOOP, MeasuredWorker
from pgwake.database.connection import Connection
from pgwake.database.install import install
from pgwake.settings import Settings

from . import reference
from .measure import Bench


@dataclass(frozen=True, slots=True)
class Contender:
    """A queue.

    Attributes:
        name: What the tables call it.
        jobs: Its table of jobs that are not done, as a FROM clause.
        ended: Where its done jobs are, with started_at and finished_at.
        table: Its table of all jobs.
        hold: Keep its workers from claiming.
        release: Let them.
        command: Its worker, beside the interpreter.
        schema: What makes its table; None: pgwake is installed.
    """

    name: str
    jobs: str
    ended: str
    table: str
    hold: str
    release: str
    command: tuple[str, ...]
    schema: str | None = None

    @property
    def insert(self) -> str:
        """Insert one job; $1 is its payload."""
        return f"insert into {self.table} (kind, payload) values ('{LATENCY}', $1)"

    @asynccontextmanager
    async def database(self, bench: Bench) -> AsyncIterator[tuple[str, Connection]]:
        """A new database with its table: its URL, and a session in it."""
        async with bench.database() as (url, connection):
            if self.schema is None:
                await install(url)
            else:
                await connection.execute(self.schema)
            yield url, connection

    async def fill(
        self,
        connection: Connection,
        jobs: int,
        payload: str = "{}",
        keys: int = 0,
        is_chain: bool = False,
    ) -> None:
        """Insert jobs that do nothing, of so many concurrency keys, or in a chain."""
        columns, values = "kind, payload", f"'{NOOP}', $2::jsonb"
        if keys:
            columns, values = f"{columns}, concurrency_key", f"{values}, n % {keys}"
        if is_chain:  # ids count from 1 in a new database
            columns = f"{columns}, depends_on"
            values = f"{values}, case when n > 1 then array[n - 1] end"
        await connection.execute(
            f"insert into {self.table} ({columns}) "
            f"select {values} from generate_series(1, $1::int) as n",
            jobs,
            payload,
        )

    async def drain(
        self, url: str, connection: Connection, *arguments: str, processes: int = 1
    ) -> Figures:
        """Let a started worker at all jobs, which were held, until none is left."""
        await connection.execute("vacuum analyze")
        jobs, last = await connection.fetchrow(
            f"select count(*), max(id) from {self.jobs}"
        ) or (0, 0)
        left = f"select exists (select from {self.jobs}"
        # Without a look through all that is dead.
        is_last_left = await connection.prepare(f"{left} and id = $1)")

        async def drain() -> None:
            await connection.execute(self.release)
            async with asyncio.timeout(600):
                while await is_last_left.fetchval(last):
                    await asyncio.sleep(0.02)
                while await connection.fetchval(f"{left})"):
                    await asyncio.sleep(0.02)

        async with self.worker(url, *arguments, processes=processes) as worker:
            return await measured(connection, jobs, drain, worker.pid)

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
    table="pgwake.jobs",
    hold="insert into pgwake.queues (name, paused_until) "
    "values ('default', 'infinity')",
    release="update pgwake.queues set paused_until = null",
    command=COMMAND,
)
REFERENCE, DELETING_REFERENCE = (
    Contender(
        name=name,
        jobs="plain_jobs where state <> 'done'",
        ended="plain_jobs where state = 'done'",
        table="plain_jobs",
        hold="select pg_advisory_lock(1)",
        release="select pg_advisory_unlock(1)",
        command=("-m", "tests.lab.benchmarks.reference", *command),
        schema=reference.SCHEMA,
    )
    for name, *command in (
        ("hand-written loop",),
        ("hand-written loop that deletes", "--delete"),
    )
)

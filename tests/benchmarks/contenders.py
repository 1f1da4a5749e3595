"""What is measured: pgwake, and hand-written loops as the line to stay near.

Both keep their jobs in a table, are started as a process of their own, and note in a
file how late each job's handler began. Each can be held, so that a backlog is there
before its worker, already started and connected, is let at it.
"""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from pgwake.connection import Connection
from pgwake.install import install

from . import reference
from .handlers import DELAYS
from .measure import CHECKOUT, until

START_SECONDS = 120


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
    ) -> AsyncIterator["WorkerProcess"]:
        """Run a worker that has started and listens."""
        if self.schema is None:
            arguments = (*arguments, "--processes", str(processes))
        with TemporaryDirectory(prefix="pgwake-bench-") as folder:
            worker = WorkerProcess(Path(folder))
            await worker.start([*self.command, *arguments], url, processes)
            try:
                yield worker
            finally:
                await worker.stop()


class WorkerProcess:
    """A worker: its process id, and the delays that its handlers noted."""

    def __init__(self, folder: Path) -> None:
        self._log = folder / "log"
        self._delays = folder / "delays"
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int:
        """The process id; of the supervisor, where there is one."""
        assert self._process is not None
        return self._process.pid

    async def start(self, command: list[str], url: str, processes: int) -> None:
        """Start it, and wait until all its processes have."""
        self._log.touch()
        self._delays.touch()
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, *command),
            cwd=CHECKOUT,
            env={
                **os.environ,
                "PGWAKE_DATABASE_URL": url,
                DELAYS: str(self._delays),
            },
            stderr=self._log.open("wb"),
        )
        try:
            await until(lambda: self._have_started(processes), START_SECONDS)
        except BaseException:
            await self.stop()
            raise

    async def _have_started(self, processes: int) -> bool:
        assert self._process is not None
        log = self._log.read_text()
        if self._process.returncode is not None:
            raise RuntimeError(f"the worker has ended:\n{log[-4000:]}")
        return log.count('"worker started"') >= processes

    async def stop(self) -> None:
        """Stop it as a deploy would."""
        assert self._process is not None
        if self._process.returncode is None:
            self._process.terminate()
        await asyncio.wait_for(self._process.wait(), 60)

    async def delays(self, jobs: int, seconds: float = 60) -> list[float]:
        """Wait until so many handlers have begun; by how many milliseconds too late."""
        await until(lambda: self._has_noted(jobs), seconds)
        return [float(line) for line in self._delays.read_text().splitlines()]

    async def _has_noted(self, jobs: int) -> bool:
        return self._delays.read_text().count("\n") >= jobs


def payload_at(instant: int, bytes_: int = 0) -> str:
    """A payload with the instant that its job is measured from."""
    return json.dumps({"at": instant, **padding(bytes_)})


def padding(bytes_: int) -> dict[str, str]:
    """Fields of so many bytes that no compression makes smaller."""
    return {"text": os.urandom(bytes_ // 2).hex()} if bytes_ else {}


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
        *("-m", "pgwake", "run", "--import", "tests.benchmarks.handlers"),
        *("--http-port", "0"),
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
        command=("-m", "tests.benchmarks.reference", *command),
        schema=reference.SCHEMA,
    )


REFERENCE = _reference("hand-written loop")
DELETING_REFERENCE = _reference("hand-written loop that deletes", "--delete")

"""All clients of the kit at once, with Python's workers, on one queue of one database.

A consumer and a producer of each language, and `pgwake run` with two worker processes. In
the middle a consumer of each language and a worker process are killed with a job in hand,
and others started in their place.
"""

import asyncio
import json
import os
import signal
import sys
import time
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

import asyncpg

from .account import ROWS, Account, draw_up, language_of
from .clients import CLIENTS, environment

CHECKOUT = Path(__file__).resolve().parents[2]
QUEUE = "conformance"
WORKERS = (
    *(sys.executable, "-m", "pgwake", "run", "--http-port", "0", "--processes", "2"),
    *("--import", "tests.conformance.handlers", "--queue", f"{QUEUE}:1"),
)
LEASE = 30  # none runs out, on a busy machine neither: see RUN_OUT
LOOK = 0.05  # seconds between two looks at the database

INSERT = """
insert into pgwake.jobs (queue, kind, payload)
select $1, $2, jsonb_build_object('number', n, 'seconds', $3::float8)
from generate_series(1, $4::int) as n
"""
LIVE = "select count(*) from pgwake.jobs_live where queue = $1"
COMPLETERS = """
select distinct claimed_by from pgwake.jobs where queue = $1 and status = 'completed'
"""
IN_HAND = """
select claimed_by from pgwake.jobs_live
where queue = $1 and status = 'running' and (payload ->> 'seconds')::float8 = $2
"""
# What becomes of a killed consumer's job, without half a minute of waiting for it.
RUN_OUT = """
update pgwake.jobs_live set lease_expires_at = now()
where claimed_by = $1 and status = 'running'
"""
SHORT, LONG = 0.1, 2.0  # seconds: for everybody to get a job; for a kill in the middle

Connection = asyncpg.Connection[asyncpg.Record]


class Process:
    """A client, and what it prints."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.pid = process.pid
        self.lines: list[str] = []
        self._process = process
        self._is_ready = asyncio.Event()
        self._reader = asyncio.create_task(self._read())

    @classmethod
    async def start(cls, command: tuple[str, ...], url: str, log: IO[bytes]) -> "Process":
        """Start it; its errors go into the log."""
        return cls(
            await asyncio.create_subprocess_exec(
                *command,
                cwd=CHECKOUT,
                env=environment(url, QUEUE, LEASE),
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
            )
        )

    async def _read(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            self.lines.append(line.decode().rstrip("\n"))
            self._is_ready.set()
        self._is_ready.set()

    async def ready(self) -> None:
        """Wait for its first line."""
        await self._is_ready.wait()
        assert self.lines, f"process {self.pid} has ended: {await self.end()}"

    def send(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self._process.send_signal(number)

    async def end(self) -> int:
        """Wait for its end; its exit code."""
        await self._reader
        return await self._process.wait()


class Crew:
    """The consumers, and Python's workers."""

    def __init__(self, url: str, log: IO[bytes]) -> None:
        self._url = url
        self._log = log
        self._consumers: dict[str, Process] = {}
        self._workers: Process | None = None
        self.killed: set[str] = set()
        self.printed: dict[str, list[str]] = {}

    async def start(self) -> None:
        """Start one of each."""
        self._workers = await Process.start(WORKERS, self._url, self._log)
        for language in CLIENTS:
            await self._start(language)
        await self.ready()

    async def _start(self, language: str) -> None:
        consumer = await Process.start(CLIENTS[language].consumer, self._url, self._log)
        self._consumers[language] = consumer
        self.printed[f"{language}-{consumer.pid}"] = consumer.lines

    async def ready(self) -> None:
        """Wait until each works."""
        await asyncio.gather(*(one.ready() for one in self._consumers.values()))

    async def kill_one_of_each(self, connection: Connection) -> None:
        """Kill a consumer of each language, and a worker, in the middle of a job."""
        left = {*CLIENTS, "python"}
        while left:
            await connection.execute(INSERT, QUEUE, "conformance.echo", LONG, len(left))
            while left and await connection.fetchval(LIVE, QUEUE):
                for (worker,) in await connection.fetch(IN_HAND, QUEUE, LONG):
                    language = language_of(worker)
                    if language in left and await self._kill(worker, connection):
                        left.remove(language)
                        break
                else:
                    await asyncio.sleep(LOOK)

    async def _kill(self, worker: str, connection: Connection) -> bool:
        """Kill a consumer; whether it had a job in hand."""
        self.killed.add(worker)
        language = language_of(worker)
        if language == "python":  # its supervisor sees to the rest
            os.kill(int(worker.split(":")[1]), signal.SIGKILL)
            return True
        self._consumers[language].send(signal.SIGKILL)
        await self._consumers[language].end()
        status = await connection.execute(RUN_OUT, worker)
        await connection.execute("select pgwake.maintain('sweep')")
        await self._start(language)
        return status == "UPDATE 1"

    async def stop(self) -> None:
        """Stop all as a deploy would: each ends with exit code 0."""
        assert self._workers is not None
        self._workers.send(signal.SIGTERM)
        codes = {"python": self._workers.end()}
        for language, consumer in self._consumers.items():
            consumer.send(CLIENTS[language].stop)
            codes[language] = consumer.end()
        ended = dict(zip(codes, await asyncio.gather(*codes.values()), strict=True))
        assert not any(ended.values()), f"exit codes {ended}"

    def kill(self) -> None:
        """End what has not ended."""
        for process in (*self._consumers.values(), self._workers):
            if process is not None:
                process.kill()


async def run(url: str, jobs: int) -> Account:
    """Have about so many jobs done, in a database that has the schema and no jobs."""
    connection = await asyncpg.connect(url)
    with TemporaryFile() as log:
        crew = Crew(url, log)
        try:
            await connection.set_type_codec(
                "jsonb", schema="pg_catalog", encoder=json.dumps, decoder=json.loads
            )
            await crew.start()
            began = time.monotonic()
            acknowledged = await _produce(url, jobs // len(CLIENTS), connection, log)
            await _let_each_complete(connection)
            await crew.kill_one_of_each(connection)
            while await connection.fetchval(LIVE, QUEUE):
                await asyncio.sleep(LOOK)
            seconds = time.monotonic() - began
            await crew.ready()
            await crew.stop()
            rows = await connection.fetch(ROWS, QUEUE)
        except BaseException:
            log.seek(0)
            print(log.read().decode()[-4000:])  # noqa: T201
            raise
        finally:
            crew.kill()
            await connection.close()
    return draw_up(rows, acknowledged, crew.printed, crew.killed, seconds)

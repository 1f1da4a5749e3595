"""All languages at once, with Python's workers, on one queue of one database.

A consumer and a producer of each, and `pgwake run` with two worker processes. In the
middle one consumer of each language, and one worker process, are killed with a job in
hand, and others take their places.
"""

import asyncio
import json
import os
import signal
import time
from contextlib import AsyncExitStack
from pathlib import Path

import asyncpg

from clients.account import ROWS, Account, draw_up, language_of, pid_of
from clients.clients import LANGUAGES, Clients, Consumer
from support import CHECKOUT, Connection
from support.worker.processes import WorkerProcess

QUEUE = "conformance"
ECHO = "conformance.echo"
LOOK = 0.02  # seconds between two looks at the database
WORKERS = (
    *("-m", "pgwake", "run", "--processes", "2", "--http-port", "0"),
    *("--import", "tests.clients.handlers", "--queue", f"{QUEUE}:1"),
)
SHORT, LONG = 0.1, 2.0  # seconds of a job: for each to get one; to be killed in one

INSERT = """
insert into pgwake.jobs (queue, kind, payload)
select $1, $2, jsonb_build_object('number', n, 'seconds', $3::float8)
from generate_series(1, $4::int) as n
"""
LIVE = "select count(*) from pgwake.jobs_live where queue = $1"
COMPLETERS = """
select distinct claimed_by from pgwake.jobs where queue = $1 and status = 'completed'
"""
# Who has just begun a long one.
IN_HAND = """
select claimed_by from pgwake.jobs_live
where queue = $1 and status = 'running' and (payload ->> 'seconds')::float8 = $2
  and started_at > clock_timestamp() - interval '1 second'
"""
# In place of waiting for the lease to run out; a short one would on a busy machine too.
# (A worker's job its supervisor may have given back by then.)
RUN_OUT = """
update pgwake.jobs_live set lease_expires_at = now()
where claimed_by = $1 and status = 'running'
"""


class Crew:
    """The consumers, of each language one at work."""

    def __init__(self, clients: Clients, stack: AsyncExitStack) -> None:
        self.printed: dict[str, list[str]] = {}
        self.killed: set[str] = set()
        self._clients = clients
        self._stack = stack
        self._at_work: dict[str, Consumer] = {}

    async def start(self, *languages: str) -> None:
        """Start a consumer of each language."""
        await asyncio.gather(*map(self._start, languages))

    async def _start(self, language: str) -> None:
        consumer = await self._stack.enter_async_context(
            self._clients.consuming(language, QUEUE)
        )
        self._at_work[language] = consumer
        self.printed[f"{language}-{consumer.pid}"] = consumer.lines

    async def kill_one_of_each(self, connection: Connection) -> None:
        """Kill a consumer of each language, and a worker, in the middle of a job."""
        left = {*LANGUAGES, "python"}
        async with asyncio.TaskGroup() as starting:
            while left:
                if not await connection.fetchval(LIVE, QUEUE):
                    await connection.execute(
                        INSERT, QUEUE, ECHO, LONG, len(LANGUAGES) + 2
                    )
                for (worker,) in await connection.fetch(IN_HAND, QUEUE, LONG):
                    language = language_of(worker)
                    if language not in left:
                        continue
                    if await self._kill(worker, connection):
                        left.remove(language)
                    if language in LANGUAGES:  # pgwake run starts another itself
                        starting.create_task(self._start(language))
                    break  # the others may have come further meanwhile
                else:
                    await asyncio.sleep(LOOK)

    async def _kill(self, worker: str, connection: Connection) -> bool:
        """Kill a consumer; whether it had a job in hand."""
        self.killed.add(worker)
        os.kill(pid_of(worker), signal.SIGKILL)
        status = await connection.execute(RUN_OUT, worker)
        await connection.execute("select pgwake.maintain('sweep')")
        return status == "UPDATE 1"

    async def stop(self) -> None:
        """Stop those at work."""
        codes = await asyncio.gather(*(one.stop() for one in self._at_work.values()))
        assert not any(codes), dict(zip(self._at_work, codes, strict=True))


async def produce(clients: Clients, connection: Connection, count: int) -> None:
    """Have each language insert so many jobs, and insert some that fail."""
    producing = asyncio.gather(
        *(clients.run(one, "producer", str(count), QUEUE=QUEUE) for one in LANGUAGES)
    )
    for kind in ("conformance.fail_once", "conformance.fail"):
        await connection.execute(INSERT, QUEUE, kind, 0, count)
    said = [(0, ["refused 23514", f"inserted {count}"])] * len(LANGUAGES)
    assert await producing == said


async def let_each_complete(connection: Connection) -> None:
    """Keep the queue filled until each language has completed a job."""
    left = {*LANGUAGES, "python"}
    while left:
        if await connection.fetchval(LIVE, QUEUE) < len(left):
            await connection.execute(INSERT, QUEUE, ECHO, SHORT, 2 * len(LANGUAGES))
        for (worker,) in await connection.fetch(COMPLETERS, QUEUE):
            left.discard(language_of(worker))
        await asyncio.sleep(LOOK)


async def run(url: str, binaries: Path, jobs: int) -> Account:
    """Have about so many jobs done, in a database that has the schema; the account."""
    clients = Clients(url, binaries)
    connection = await asyncpg.connect(url)
    await connection.set_type_codec(
        "jsonb", schema="pg_catalog", encoder=json.dumps, decoder=json.loads
    )
    async with AsyncExitStack() as stack:
        stack.push_async_callback(connection.close)
        workers = await WorkerProcess.start(
            *WORKERS,
            directory=CHECKOUT,
            environment={"PGWAKE_DATABASE_URL": url, "PGWAKE_LOG_LEVEL": "warning"},
        )
        stack.push_async_callback(workers.close)
        crew = Crew(clients, stack)
        await crew.start(*LANGUAGES)
        began = time.monotonic()
        count = jobs // (len(LANGUAGES) + 2)
        await produce(clients, connection, count)
        await let_each_complete(connection)
        await crew.kill_one_of_each(connection)
        while await connection.fetchval(LIVE, QUEUE):
            await asyncio.sleep(LOOK)
        seconds = time.monotonic() - began
        await crew.stop()
        workers.send(signal.SIGTERM)
        assert await workers.exit_code() == 0
        rows = [dict(row) for row in await connection.fetch(ROWS, QUEUE)]
    keys = {one: {f"{one}-{n}" for n in range(count)} for one in LANGUAGES}
    return draw_up(rows, keys, crew.printed, crew.killed, seconds)

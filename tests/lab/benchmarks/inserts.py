"""What waking costs those who insert: one-row commits a second from 32 connections.

By pgbench. Beside pgwake, the same table without its trigger; with one that does
nothing, which is what the server takes for having any; and with one that notifies for
each statement while bare sessions LISTEN: what the server itself allows a queue that
always notifies.
"""

import asyncio
import functools
import os
import re
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory

import psycopg

from pgwake.cli.bench.measure import Figures
from pgwake.cli.bench.worker import NOOP
from pgwake.database.binaries import find_binaries

from .contenders import PGWAKE
from .measure import Bench, Run

QUICK = {"seconds": 1, "repeats": 1, "many": 2}
INSERT = f"insert into pgwake.jobs (kind, payload) values ('{NOOP}', '{{}}');\n"
NO_TRIGGER = "alter table pgwake.jobs disable trigger user"
TRIGGER = """
create function other() returns trigger language plpgsql as $$
begin
  {}
  return null;
end
$$;
create trigger other after insert on pgwake.jobs
  referencing new table as inserted for each statement execute function other();
"""
NOTHING = TRIGGER.format("")
ALWAYS_NOTIFY = TRIGGER.format("perform pg_notify('plain', '');")


async def run(
    bench: Bench,
    *,
    seconds: int = 5,
    clients: int = 32,
    many: int = 20,
    repeats: int = 5,
) -> list[Run]:
    """Insert for so long, with `many` idle workers at most."""
    inserts = functools.partial(_inserts, bench, seconds, clients)
    return await bench.rounds(
        {
            "no trigger": functools.partial(inserts, setup=(NO_TRIGGER,)),
            "trigger that does nothing": functools.partial(
                inserts, setup=(NO_TRIGGER, NOTHING)
            ),
            "nobody asleep": inserts,
            "one worker": functools.partial(inserts, workers=1),
            f"{many} workers": functools.partial(inserts, workers=many),
            "NOTIFY always, 1 bare LISTEN": functools.partial(
                inserts, setup=(NO_TRIGGER, ALWAYS_NOTIFY), listeners=1
            ),
            f"NOTIFY always, {many} bare LISTENs": functools.partial(
                inserts, setup=(NO_TRIGGER, ALWAYS_NOTIFY), listeners=many
            ),
        },
        repeats,
    )


async def _inserts(
    bench: Bench,
    seconds: int,
    clients: int,
    *,
    setup: tuple[str, ...] = (),
    workers: int = 0,
    listeners: int = 0,
) -> Figures:
    async with PGWAKE.database(bench) as (url, connection):
        for statement in setup:
            await connection.execute(statement)
        async with (
            PGWAKE.worker(url, processes=workers) if workers else nullcontext(),
            _listening(url, listeners),
        ):
            await asyncio.sleep(1)
            rate = await _pgbench(url, seconds, clients)
            left = await connection.fetchval("select count(*) from pgwake.jobs_live")
    return {"commits_per_second": rate, "left_pending": left}


async def _pgbench(url: str, seconds: int, clients: int) -> float:
    program = shutil.which("pgbench") or str(find_binaries() / "pgbench")
    with TemporaryDirectory(prefix="pgwake-bench-") as folder:
        script = Path(folder, "insert.sql")
        script.write_text(INSERT)  # noqa: ASYNC240, one line
        process = await asyncio.create_subprocess_exec(
            *(program, "-n", "-M", "prepared", "-c", str(clients), "-j", "2"),
            *("-T", str(seconds), "-f", str(script), url),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        output, errors = await process.communicate()
    found = re.search(rb"tps = ([\d.]+) \(without", output)
    if process.returncode or not found:
        raise RuntimeError(f"pgbench failed:\n{errors.decode()}")
    return float(found[1])


@asynccontextmanager
async def _listening(url: str, sessions: int) -> AsyncIterator[None]:
    """Sessions that LISTEN; what comes is read and dropped."""
    loop = asyncio.get_running_loop()
    listening = [psycopg.connect(url, autocommit=True) for _ in range(sessions)]
    for session in listening:
        session.execute("listen plain")
        loop.add_reader(session.fileno(), os.read, session.fileno(), 65536)
    try:
        yield
    finally:
        for session in listening:
            loop.remove_reader(session.fileno())
            session.close()

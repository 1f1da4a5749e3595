"""What idle workers cost: with one queue, with many, and in many processes.

From the start of a worker until it is quiet, while it is idle, and how soon it then
begins single jobs, each in a queue taken at random.
"""

import asyncio
import random
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from time import monotonic

from pgwake.cli.bench.measure import (
    Figures,
    latencies,
    measured,
    payload_now,
    stat_fields,
)
from pgwake.cli.bench.worker import LATENCY
from pgwake.database.connection import Connection

from .contenders import PGWAKE
from .measure import Bench, Run

QUICK = {"queues": 20, "processes": 2, "seconds": 3, "jobs": 5, "repeats": 1}
INSERT = f"insert into pgwake.jobs (kind, queue, payload) values ('{LATENCY}', $1, $2)"
# Backends report what they have done when they are idle, a second late at most.
TRANSACTIONS = """
select xact_commit + xact_rollback from pg_stat_database
where datname = current_database()
"""
ASLEEP = "select count(*) from pg_locks where locktype = 'advisory'"


async def run(
    bench: Bench,
    *,
    queues: int = 1000,
    processes: int = 50,
    seconds: int = 30,
    jobs: int = 200,
    repeats: int = 1,
) -> list[Run]:
    """Be idle with one queue, with many, and in many processes."""
    idle = partial(_idle, bench, seconds, jobs)
    conditions = {
        "1 queue": idle,
        f"{queues:,} queues": partial(idle, queues=queues),
        f"{processes} processes": partial(idle, processes=processes),
    }
    return await bench.rounds(conditions, repeats)


async def _idle(
    bench: Bench, seconds: int, jobs: int, *, queues: int = 1, processes: int = 1
) -> Figures:
    names = [f"q{n}" for n in range(queues)]
    started = monotonic()
    async with PGWAKE.database(bench) as (url, connection):
        started = monotonic()
        arguments = [word for name in names for word in ("--queue", name)]
        async with PGWAKE.worker(url, *arguments, processes=processes) as worker:
            start_seconds = monotonic() - started
            await _until_quiet(connection)
            quiet_seconds = monotonic() - started
            await asyncio.sleep(seconds / 3)  # the first poll is of the start
            before = await connection.fetchval(TRANSACTIONS)
            used = await measured(
                connection, seconds, partial(asyncio.sleep, seconds), worker.pid
            )
            after = await connection.fetchval(TRANSACTIONS)
            for name in random.choices(names, k=jobs):  # noqa: S311
                await connection.execute(INSERT, name, payload_now())
                await asyncio.sleep(0.05)
            delays = latencies(await worker.delays(jobs))
            memory = _resident_mb(worker.pid)
    return {
        "transactions_per_second": (after - before) / seconds,
        "worker_percent": used.get("worker_cpu_us", 0) / 1e4,
        "server_percent": used.get("server_cpu_us", 0) / 1e4,
        "p50_ms": delays["p50_ms"],
        "p99_ms": delays["p99_ms"],
        "started_after_s": start_seconds,
        "quiet_after_s": quiet_seconds,
        "worker_mb": memory,
    }


async def _until_quiet(connection: Connection) -> None:
    """Wait until no more locks are taken, as by workers that fall asleep."""
    held: Sequence[int] = ()
    while len(held) < 6 or len(set(held[-6:])) > 1:
        held = [*held, await connection.fetchval(ASLEEP)]
        await asyncio.sleep(0.25)


def _resident_mb(pid: int) -> float:
    """Memory of a supervisor and its processes; 0 without /proc."""
    pages = 0
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, IndexError):
            if pid in (int(process.name), int(stat_fields(int(process.name))[1])):
                pages += int((process / "statm").read_text().split()[1])
    return pages * 4096 / 1e6

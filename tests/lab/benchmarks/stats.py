"""What a call of get_queue_stats(), and of diagnose(), costs, by pending jobs."""

import functools
import json
from time import monotonic

import asyncpg

from pgwake.cli.bench.measure import Figures, latencies
from pgwake.database.connection import Connection

from .contenders import PGWAKE
from .measure import Bench, Run

QUICK = {"most": 10_000, "repeats": 1}
SIZES = (0, 10_000, 1_000_000, 10_000_000)
AT_ONCE = 1_000_000
STATS = "select * from pgwake.get_queue_stats()"
DIAGNOSE = "select * from pgwake.diagnose()"


async def run(
    bench: Bench, *, most: int = 1_000_000, calls: int = 20, repeats: int = 1
) -> list[Run]:
    """Fill the queue up to `most` jobs, at most ten million, and call it."""

    async def stats(jobs: int) -> Figures:
        async with PGWAKE.database(bench) as (_, connection):
            for done in range(0, jobs, AT_ONCE):
                count = min(AT_ONCE, jobs - done)
                await PGWAKE.fill(connection, count)
            await connection.execute("vacuum analyze")
            await connection.execute("select pgwake.maintain()")
            rows, milliseconds = await _timed(connection, STATS, calls)
            _, diagnose = await _timed(connection, DIAGNOSE, calls)
            explained = await connection.fetchval(
                f"explain (analyze, buffers, format json) {STATS}"
            )
        plan = json.loads(explained)[0]["Plan"]
        return {
            **latencies(milliseconds),
            "diagnose_p50_ms": latencies(diagnose)["p50_ms"],
            "buffers": plan["Shared Hit Blocks"] + plan["Shared Read Blocks"],
            "pending_count": rows[0]["pending_count"] if rows else 0,
        }

    return await bench.rounds(
        {
            f"{jobs:,} pending": functools.partial(stats, jobs)
            for jobs in SIZES
            if jobs <= most
        },
        repeats,
    )


async def _timed(
    connection: Connection, statement: str, calls: int
) -> tuple[list[asyncpg.Record], list[float]]:
    """Call that often: the last one's rows, and the milliseconds of each."""
    rows, milliseconds = [], []
    for _ in range(calls + 1):
        started = monotonic()
        rows = await connection.fetch(statement)
        milliseconds.append((monotonic() - started) * 1000)
    return rows, milliseconds[1:]  # the first one compiles

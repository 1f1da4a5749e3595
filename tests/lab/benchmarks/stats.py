"""What one call of get_queue_stats() costs, by the number of pending jobs."""

import functools
import json
from time import monotonic

from pgwake.cli.bench.measure import Figures, latencies

from .contenders import PGWAKE
from .measure import Bench, Run

QUICK = {"most": 10_000, "repeats": 1}
SIZES = (0, 10_000, 1_000_000, 10_000_000)
AT_ONCE = 1_000_000
STATS = "select * from pgwake.get_queue_stats()"


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
            milliseconds, rows = [], []
            for _ in range(calls + 1):
                started = monotonic()
                rows = await connection.fetch(STATS)
                milliseconds.append((monotonic() - started) * 1000)
            explained = await connection.fetchval(
                f"explain (analyze, buffers, format json) {STATS}"
            )
        plan = json.loads(explained)[0]["Plan"]
        del milliseconds[0]  # it compiles
        return {
            **latencies(milliseconds),
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

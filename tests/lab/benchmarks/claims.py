"""How often workers ask: claims by many idle ones, with and without a few jobs.

Counted by the server in whole runs of the workers, so that the looks at their start and
at each poll, which they need without any job, can be taken off.
"""

import asyncio
from time import monotonic

from pgwake.cli.bench.measure import Figures, payload_now

from .contenders import PGWAKE
from .measure import Bench, Run

QUICK = {"processes": 3, "seconds": 3}
CLAIMS = """
select coalesce(sum(calls), 0)::int from pg_stat_user_functions
where schemaname = 'pgwake' and funcname = 'claim_rows'
"""


async def run(
    bench: Bench,
    *,
    processes: int = 50,
    rate: int = 10,
    seconds: int = 20,
    repeats: int = 1,
) -> list[Run]:
    """Run that many worker processes without jobs, then with some."""
    runs = []
    for _ in range(repeats):
        idle = await _claims(bench, processes, 0, seconds)
        busy = await _claims(bench, processes, rate, seconds)
        jobs = rate * seconds
        figures: Figures = {
            "claims_per_job": busy / jobs,
            "idle_claims_per_job": idle / jobs,
            "claims_per_job_beyond_idle": (busy - idle) / jobs,
        }
        runs.append(Run(f"{processes} idle workers, {rate} jobs/s", figures))
    return runs


async def _claims(bench: Bench, processes: int, rate: int, seconds: int) -> int:
    """The number of claims, with that many jobs a second."""
    async with PGWAKE.database(bench) as (url, connection):
        database = await connection.fetchval("select current_database()")
        # A superuser's setting: without it, nobody counts.
        await connection.execute(f"alter database {database} set track_functions = pl")
        async with PGWAKE.worker(url, processes=processes) as worker:
            started = monotonic()
            for number in range(rate * seconds):
                await asyncio.sleep(max(started + number / rate - monotonic(), 0))
                await connection.execute(PGWAKE.insert, payload_now())
            await asyncio.sleep(max(started + seconds - monotonic(), 0))
            await worker.delays(rate * seconds)
        claims: int = await connection.fetchval(CLAIMS)
        return claims

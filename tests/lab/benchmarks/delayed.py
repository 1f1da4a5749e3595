"""How late a delayed job begins, by its handler, with the poll at one hour.

The server must run on this machine, or its clock be the same: run_at is by the
server's, the handler looks at its own.
"""

from time import monotonic_ns, time_ns

from pgwake.cli.bench.measure import Figures, latencies
from pgwake.cli.bench.worker import LATENCY

from .contenders import PGWAKE
from .measure import Bench, Run

QUICK = {"jobs": 20, "repeats": 1}
HOUR = 3600
INSERT = f"""
insert into pgwake.jobs (kind, run_at, payload)
select '{LATENCY}', run_at,
  jsonb_build_object('at', (1e9 * extract(epoch from run_at))::bigint - $3::bigint)
from (
  select clock_timestamp() + interval '1 second' + interval '1 ms' * $2::int
    * (number + random() / 2) as run_at
  from generate_series(1, $1::int) as number
) as due
"""


async def run(
    bench: Bench, *, jobs: int = 200, pause_ms: int = 100, repeats: int = 3
) -> list[Run]:
    """Insert them all at once, each due about so long after the one before."""

    async def delayed() -> Figures:
        async with (
            PGWAKE.database(bench) as (url, connection),
            PGWAKE.worker(url, "--poll-interval", str(HOUR)) as worker,
        ):
            booted = time_ns() - monotonic_ns()
            await connection.execute(INSERT, jobs, pause_ms, booted)
            delays = await worker.delays(jobs, jobs * pause_ms / 1000 + 60)
        return {"min_ms": min(delays), **latencies(delays)}

    return await bench.rounds({"delayed": delayed}, repeats)

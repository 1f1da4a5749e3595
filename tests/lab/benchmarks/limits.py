"""What concurrency keys, max_running and a rate cost: a backlog with and without.

As drain, with a worker of ten slots. The limits are such that they hold nothing up for
long: more keys than slots, more room than slots, a rate that is never reached.
"""

import functools
import json
from time import monotonic

from pgwake.cli.bench.measure import Figures, Meter

from .contenders import PGWAKE
from .measure import Bench, Run

QUICK = {"jobs": 5_000, "repeats": 1}
FILL = """
insert into pgwake.jobs (kind, payload, concurrency_key)
select 'noop', $2, case when $3 > 0 then n % $3 end
from generate_series(1, $1::int) as n
"""
POLICY = """
update pgwake.queues set key_limit = $1, max_running = $2, rate_limit = $3
"""
RELEASE = "update pgwake.queues set paused_until = null"


async def run(bench: Bench, *, jobs: int = 20_000, repeats: int = 3) -> list[Run]:
    """Drain under each condition."""
    drain = functools.partial(_drain, bench, jobs)
    return await bench.rounds(
        {
            "no limits": drain,
            "1,000 keys": functools.partial(drain, keys=1000),
            "1,000 keys, 10 of each": functools.partial(drain, keys=1000, key_limit=10),
            "1 key, 10 of it": functools.partial(drain, keys=1, key_limit=10),
            "max_running": functools.partial(drain, max_running=1000),
            "rate": functools.partial(drain, rate_limit=1e6),
        },
        repeats,
    )


async def _drain(
    bench: Bench,
    jobs: int,
    *,
    keys: int = 0,
    key_limit: int | None = None,
    max_running: int | None = None,
    rate_limit: float | None = None,
) -> Figures:
    async with bench.database() as (url, connection):
        await PGWAKE.install(url, connection)
        await connection.execute(PGWAKE.hold)
        await connection.execute(POLICY, key_limit, max_running, rate_limit)
        await connection.execute(FILL, jobs, json.dumps({"number": 1}), keys)
        await connection.execute("vacuum analyze")
        async with PGWAKE.worker(url) as worker:
            meter = Meter(connection, worker.pid)
            await meter.start()
            started = monotonic()
            await connection.execute(RELEASE)
            await PGWAKE.wait_until_done(connection)
            seconds = monotonic() - started
            return {"jobs_per_second": jobs / seconds, **await meter.stop(jobs)}

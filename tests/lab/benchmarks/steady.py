"""A steady stream: latency from INSERT's start to handler, and the cost of each job."""

import asyncio
import functools
from time import monotonic_ns

import asyncpg

from pgwake.cli.bench.measure import Figures, Meter, insert_all, latencies, payload_at

from .contenders import PGWAKE, REFERENCE, Contender
from .measure import Bench, Run

QUICK = {"seconds": 3, "repeats": 1}
SETTLE_SECONDS = 0.3  # for the last ends to be written


async def run(
    bench: Bench,
    *,
    rate: int = 500,
    seconds: int = 30,
    connections: int = 10,
    repeats: int = 3,
) -> list[Run]:
    """Insert at that rate, over so many connections."""
    steady = functools.partial(_steady, bench, rate, seconds, connections)
    return await bench.rounds(
        {one.name: functools.partial(steady, one) for one in (PGWAKE, REFERENCE)},
        repeats,
    )


async def _steady(
    bench: Bench, rate: int, seconds: int, connections: int, contender: Contender
) -> Figures:
    jobs = rate * seconds
    async with bench.database() as (url, connection):
        await contender.install(url, connection)
        async with (
            asyncpg.create_pool(
                url, min_size=connections, max_size=connections
            ) as pool,
            contender.worker(url) as worker,
        ):
            await asyncio.sleep(1)
            meter = Meter(connection, worker.pid)
            await meter.start()

            async def insert() -> None:
                async with pool.acquire() as producer:
                    await producer.execute(contender.insert, payload_at(monotonic_ns()))

            seconds_taken = await insert_all([insert] * connections, jobs, rate)
            delays = await worker.delays(jobs)
            await asyncio.sleep(SETTLE_SECONDS)
            used = await meter.stop(jobs)
    return {**latencies(delays), **used, "inserted_per_second": jobs / seconds_taken}

"""A steady stream: latency from INSERT's start to handler, and the cost of each job."""

import asyncio
import functools
from time import monotonic

import asyncpg

from pgwake.cli.bench.measure import Figures, latencies, measured, payload_now

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
    figures: Figures = {}
    async with (
        contender.database(bench) as (url, connection),
        asyncpg.create_pool(url, min_size=connections, max_size=connections) as pool,
        contender.worker(url) as worker,
    ):

        async def producer(began: float) -> None:
            for n in numbers:
                await asyncio.sleep(max(began + n / rate - monotonic(), 0))
                await pool.execute(contender.insert, payload_now())

        async def stream() -> None:
            began = monotonic()
            async with asyncio.TaskGroup() as tasks:
                for _ in range(connections):
                    tasks.create_task(producer(began))
            seconds_taken = monotonic() - began
            figures.update(latencies(await worker.delays(jobs)))
            figures["inserted_per_second"] = jobs / seconds_taken
            await asyncio.sleep(SETTLE_SECONDS)

        numbers = iter(range(jobs))
        await asyncio.sleep(1)
        used = await measured(connection, jobs, stream, worker.pid)
    del used["jobs_per_second"]
    return figures | used
